//go:build !before130

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func runScores(ctx context.Context, f framework.Framework, state CycleState, pod *v1.Pod, feasible []NodeInfo) ([]NodePluginScores, error) {
	if st := f.RunPreScorePlugins(ctx, state, pod, feasible); !st.IsSuccess() {
		return nil, st.AsError()
	}
	scores, st := f.RunScorePlugins(ctx, state, pod, feasible)
	return scores, st.AsError()
}
