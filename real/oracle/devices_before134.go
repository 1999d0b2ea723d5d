//go:build before134

package main

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// Devices are ignored: dynamic resource allocation was not enabled by default.
type Devices struct{}

func (d *Devices) objects(objs []runtime.Object) []runtime.Object {
	return objs
}
