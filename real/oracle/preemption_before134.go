//go:build before134 && !before132

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	plfeature "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// dryRun returns every node that preemption could clear. Errors of single nodes are ignored if another node can be
// nominated, as in kube-scheduler.
func dryRun(ctx context.Context, f framework.Framework, args *config.DefaultPreemptionArgs, state CycleState, pod *v1.Pod, nodes []NodeInfo, pdbs []*policyv1.PodDisruptionBudget) ([]preemption.Candidate, error) {
	pl, err := defaultpreemption.New(ctx, args, f, plfeature.Features{})
	if err != nil {
		return nil, err
	}
	evaluator := pl.(*defaultpreemption.DefaultPreemption).Evaluator
	candidates, _, _ := evaluator.DryRunPreemption(ctx, state, pod, nodes, pdbs, 0, int32(len(nodes)))
	return candidates, nil
}
