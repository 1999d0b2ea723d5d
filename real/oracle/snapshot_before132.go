//go:build before132

package main

import (
	"context"
	"reflect"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
)

// updateSnapshot calls a method of an internal package.
func updateSnapshot(ctx context.Context, sched *scheduler.Scheduler, snap SharedLister) error {
	update := reflect.ValueOf(sched.Cache).MethodByName("UpdateSnapshot")
	out := update.Call([]reflect.Value{reflect.ValueOf(klog.FromContext(ctx)), reflect.ValueOf(snap)})
	err, _ := out[0].Interface().(error)
	return err
}
