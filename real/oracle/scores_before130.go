//go:build before130

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func runScores(ctx context.Context, f framework.Framework, state CycleState, pod *v1.Pod, feasible []NodeInfo) ([]NodePluginScores, error) {
	var nodes []*v1.Node
	for _, ni := range feasible {
		nodes = append(nodes, ni.Node())
	}
	if st := f.RunPreScorePlugins(ctx, state, pod, nodes); !st.IsSuccess() {
		return nil, st.AsError()
	}
	scores, st := f.RunScorePlugins(ctx, state, pod, nodes)
	return scores, st.AsError()
}
