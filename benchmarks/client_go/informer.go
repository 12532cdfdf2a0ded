// What a Go operator would do with the same bundles: client-go's dynamic informer, with its defaults. Prints as JSON how
// long it took to be synced, its processor time (seconds) and its memory (MB).
package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	begun := time.Now()
	bundles := schema.GroupVersionResource{Group: "trimtab.dev", Version: "v1alpha1", Resource: "bundles"}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	store := factory.ForResource(bundles).Informer().GetStore()
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	took := time.Since(begun).Seconds()
	time.Sleep(time.Second)
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	_ = json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"synced_s":     took,
		"synced_cpu_s": seconds(used.Utime) + seconds(used.Stime),
		"bundles":      float64(len(store.ListKeys())),
		"mb":           resident(),
	})
}

func seconds(t syscall.Timeval) float64 {
	return float64(t.Sec) + float64(t.Usec)/1e6
}

func resident() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kB, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kB / 1024
}
