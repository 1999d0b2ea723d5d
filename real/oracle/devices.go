//go:build !before134

package main

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Devices are the objects of dynamic resource allocation.
type Devices struct {
	ResourceClaims []*resourcev1.ResourceClaim `json:"resourceClaims,omitempty"`
	ResourceSlices []*resourcev1.ResourceSlice `json:"resourceSlices,omitempty"`
	DeviceClasses  []*resourcev1.DeviceClass   `json:"deviceClasses,omitempty"`
}

func (d *Devices) objects(objs []runtime.Object) []runtime.Object {
	objs = add(objs, d.ResourceClaims)
	objs = add(objs, d.ResourceSlices)
	return add(objs, d.DeviceClasses)
}
