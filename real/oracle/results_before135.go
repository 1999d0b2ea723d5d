//go:build before135

package main

import (
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type (
	NodePluginScores = framework.NodePluginScores
	PreFilterResult  = framework.PreFilterResult
	SharedLister     = framework.SharedLister
)
