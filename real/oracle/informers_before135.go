//go:build before135

package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler"
)

// newInformers returns the informers, and a function that waits for what plugins derive from them: VolumeBinding keeps
// volumes and claims in caches of its own, which event handlers fill.
func newInformers(client kubernetes.Interface) (informers.SharedInformerFactory, func(context.Context) error) {
	f := &watchedInformers{SharedInformerFactory: scheduler.NewInformerFactory(client, 0)}
	return f, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			for _, handler := range f.handlers {
				if !handler.HasSynced() {
					return false, nil
				}
			}
			return true, nil
		})
	}
}

// watchedInformers remembers the event handlers of volumes and claims.
type watchedInformers struct {
	informers.SharedInformerFactory
	handlers []cache.ResourceEventHandlerRegistration
}

func (f *watchedInformers) Core() core.Interface {
	return watchedCore{f.SharedInformerFactory.Core(), f}
}

type watchedCore struct {
	core.Interface
	f *watchedInformers
}

func (c watchedCore) V1() corev1.Interface {
	return watchedV1{c.Interface.V1(), c.f}
}

type watchedV1 struct {
	corev1.Interface
	f *watchedInformers
}

func (v watchedV1) PersistentVolumes() corev1.PersistentVolumeInformer {
	return watchedVolumes{v.Interface.PersistentVolumes(), v.f}
}

func (v watchedV1) PersistentVolumeClaims() corev1.PersistentVolumeClaimInformer {
	return watchedClaims{v.Interface.PersistentVolumeClaims(), v.f}
}

type watchedVolumes struct {
	corev1.PersistentVolumeInformer
	f *watchedInformers
}

func (i watchedVolumes) Informer() cache.SharedIndexInformer {
	return watchedInformer{i.PersistentVolumeInformer.Informer(), i.f}
}

type watchedClaims struct {
	corev1.PersistentVolumeClaimInformer
	f *watchedInformers
}

func (i watchedClaims) Informer() cache.SharedIndexInformer {
	return watchedInformer{i.PersistentVolumeClaimInformer.Informer(), i.f}
}

type watchedInformer struct {
	cache.SharedIndexInformer
	f *watchedInformers
}

func (i watchedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := i.SharedIndexInformer.AddEventHandler(handler)
	if err == nil {
		i.f.handlers = append(i.f.handlers, registration)
	}
	return registration, err
}
