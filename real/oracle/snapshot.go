//go:build !before132

package main

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

func updateSnapshot(ctx context.Context, sched *scheduler.Scheduler, snap SharedLister) error {
	return sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snap.(*cache.Snapshot))
}
