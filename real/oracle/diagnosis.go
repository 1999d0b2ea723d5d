//go:build !before132

package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// diagnosis says why nodes were rejected.
type diagnosis struct {
	framework.Diagnosis
}

func newDiagnosis() *diagnosis {
	return &diagnosis{framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}}
}

func (d *diagnosis) rejectAll(_ []NodeInfo, st *Status) {
	d.NodeToStatus.SetAbsentNodesStatus(st)
	d.PreFilterMsg = st.Message()
}

// rejectUnlisted rejects the nodes that PreFilter plugins have left out.
func (d *diagnosis) rejectUnlisted(plugins []string) {
	d.NodeToStatus.SetAbsentNodesStatus(newStatus(unresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", plugins)))
}

func (d *diagnosis) reject(ni NodeInfo, st *Status) {
	d.NodeToStatus.Set(ni.Node().Name, st)
	d.AddPluginStatus(st)
}

func (d *diagnosis) status(node string) *Status {
	return d.NodeToStatus.Get(node)
}

// postFilter returns the message of the event and the node that preemption nominates.
func (d *diagnosis) postFilter(ctx context.Context, f framework.Framework, state CycleState, pod *v1.Pod, nodes int) (string, string) {
	fit := &framework.FitError{Pod: pod, NumAllNodes: nodes, Diagnosis: d.Diagnosis}
	res, st := f.RunPostFilterPlugins(ctx, state, pod, d.NodeToStatus)
	fit.Diagnosis.PostFilterMsg = st.Message()
	if res != nil && res.NominatingInfo != nil {
		return fit.Error(), res.NominatedNodeName
	}
	return fit.Error(), ""
}

// preemptible lists the nodes where preemption might help.
func (d *diagnosis) preemptible(f framework.Framework) ([]NodeInfo, error) {
	return d.NodeToStatus.NodesForStatusCode(f.SnapshotSharedLister().NodeInfos(), unschedulable)
}
