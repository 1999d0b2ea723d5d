//go:build before134

package main

import (
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// The framework's types had no package of their own yet.
type (
	CycleState = *framework.CycleState
	NodeInfo   = *framework.NodeInfo
	Status     = framework.Status
)

const (
	statusError   = framework.Error
	unschedulable = framework.Unschedulable
	unresolvable  = framework.UnschedulableAndUnresolvable
)

var newStatus = framework.NewStatus
