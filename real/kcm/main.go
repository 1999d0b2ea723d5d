// kube-controller-manager as it is, with one waiting time that it has no flag for: STEAD_FORCE_DETACH says how long the
// volumes of a node that is not heard of stay attached before they are detached by force. Kubernetes' own is six minutes.
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
		// What pods need is looked through this often; it has to be well within the wait.
		timers.DesiredStateOfWorldPopulatorLoopSleepPeriod = wait / 6
	}
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
