// Command fakecsi is the storage driver of the local cluster. It simulates the three sidecars of
// a CSI driver, on the API alone: there is no driver, and no disk.
//
//	external-provisioner  creates a volume for a claim of its class, and deletes it
//	external-attacher     reports that a volume is attached to a node, or detached
//	external-resizer      expands a claim and its volume to the size that the claim requests
//
// It makes the same writes as the sidecars, in their order: the provisioner's annotation,
// finalizers, attachment status, resize conditions. The volume binder, the attach-detach
// controller and the protection controllers are those of the cluster, not of this program.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	listen := flag.String("listen", "127.0.0.1:9808", "address of /healthz")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *listen); err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends. The address answers once the caches have synced.
func run(ctx context.Context, kubeconfig, listen string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst, config.UserAgent = -1, -1, "fakecsi"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	d := newDriver(client)
	d.watch(ctx)
	go func() {
		log.Fatal(http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })))
	}()
	d.work(ctx)
	return nil
}
