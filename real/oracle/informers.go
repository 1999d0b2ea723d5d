//go:build !before135

package main

import (
	"context"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/scheduler"
)

// newInformers returns the informers, and a function that waits for what plugins derive from them.
func newInformers(client kubernetes.Interface) (informers.SharedInformerFactory, func(context.Context) error) {
	return scheduler.NewInformerFactory(client, 0), func(context.Context) error { return nil }
}
