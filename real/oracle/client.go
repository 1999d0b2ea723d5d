//go:build !before131

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func newClient(objs ...runtime.Object) *fake.Clientset {
	return fake.NewClientset(objs...)
}

// runPreFilter also returns the plugins that narrow down the nodes, sorted.
func runPreFilter(ctx context.Context, f framework.Framework, state CycleState, pod *v1.Pod) (*PreFilterResult, *Status, []string) {
	res, st, plugins := f.RunPreFilterPlugins(ctx, state, pod)
	return res, st, sets.List(plugins)
}
