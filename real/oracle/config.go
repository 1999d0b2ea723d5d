package main

import (
	"os"

	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// configured has the profiles of a KubeSchedulerConfiguration, with the defaults that kube-scheduler adds to them.
var configured []scheduler.Option

// readConfig reads a KubeSchedulerConfiguration as kube-scheduler does.
func readConfig(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return err
	}
	configured = append(configured, scheduler.WithProfiles(object.(*config.KubeSchedulerConfiguration).Profiles...))
	return nil
}
