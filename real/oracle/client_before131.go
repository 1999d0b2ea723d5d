//go:build before131

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func newClient(objs ...runtime.Object) *fake.Clientset {
	return fake.NewSimpleClientset(objs...)
}

// runPreFilter returns no plugins: the message did not name them.
func runPreFilter(ctx context.Context, f framework.Framework, state CycleState, pod *v1.Pod) (*PreFilterResult, *Status, []string) {
	res, st := f.RunPreFilterPlugins(ctx, state, pod)
	return res, st, nil
}
