//go:build !before134

package main

import (
	fwk "k8s.io/kube-scheduler/framework"
)

type (
	CycleState = fwk.CycleState
	NodeInfo   = fwk.NodeInfo
	Status     = fwk.Status
)

const (
	statusError   = fwk.Error
	unschedulable = fwk.Unschedulable
	unresolvable  = fwk.UnschedulableAndUnresolvable
)

var newStatus = fwk.NewStatus
