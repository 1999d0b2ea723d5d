//go:build before132

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// diagnosis says why nodes were rejected. Nodes that PreFilter plugins have left out have no status.
type diagnosis struct {
	framework.Diagnosis
}

func newDiagnosis() *diagnosis {
	return &diagnosis{framework.Diagnosis{NodeToStatusMap: framework.NodeToStatusMap{}}}
}

func (d *diagnosis) rejectAll(nodes []NodeInfo, st *Status) {
	for _, ni := range nodes {
		d.NodeToStatusMap[ni.Node().Name] = st
	}
	d.PreFilterMsg = st.Message()
}

func (d *diagnosis) rejectUnlisted([]string) {}

func (d *diagnosis) reject(ni NodeInfo, st *Status) {
	d.NodeToStatusMap[ni.Node().Name] = st
	d.AddPluginStatus(st)
}

func (d *diagnosis) status(node string) *Status {
	return d.NodeToStatusMap[node]
}

// postFilter returns the message of the event and the node that preemption nominates.
func (d *diagnosis) postFilter(ctx context.Context, f framework.Framework, state CycleState, pod *v1.Pod, nodes int) (string, string) {
	fit := &framework.FitError{Pod: pod, NumAllNodes: nodes, Diagnosis: d.Diagnosis}
	res, st := f.RunPostFilterPlugins(ctx, state, pod, d.NodeToStatusMap)
	fit.Diagnosis.PostFilterMsg = st.Message()
	if res != nil && res.NominatingInfo != nil {
		return fit.Error(), res.NominatedNodeName
	}
	return fit.Error(), ""
}

// preemptible lists the nodes where preemption might help.
func (d *diagnosis) preemptible(f framework.Framework) ([]NodeInfo, error) {
	all, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, err
	}
	var nodes []NodeInfo
	for _, ni := range all {
		if d.NodeToStatusMap[ni.Node().Name].Code() == unschedulable {
			nodes = append(nodes, ni)
		}
	}
	return nodes, nil
}
