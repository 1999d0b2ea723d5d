//go:build !before135

package main

import (
	fwk "k8s.io/kube-scheduler/framework"
)

type (
	NodePluginScores = fwk.NodePluginScores
	PreFilterResult  = fwk.PreFilterResult
	SharedLister     = fwk.SharedLister
)
