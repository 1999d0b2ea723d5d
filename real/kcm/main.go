// kube-controller-manager, unchanged except for one timeout that has no flag: STEAD_FORCE_DETACH is the time after which
// the volumes of an unreachable node are force-detached. Kubernetes' default is six minutes.
package main

import (
	"fmt"
	"os"
	"time"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"
)

func main() {
	if text := os.Getenv("STEAD_FORCE_DETACH"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, "STEAD_FORCE_DETACH:", err)
			os.Exit(2)
		}
		timers := &attachdetach.DefaultTimerConfig
		timers.ReconcilerMaxWaitForUnmountDuration = wait
		// The interval of the desired state populator; it has to be well below the timeout.
		timers.DesiredStateOfWorldPopulatorLoopSleepPeriod = wait / 6
	}
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
