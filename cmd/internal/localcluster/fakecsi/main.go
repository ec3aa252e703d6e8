// Command fakecsi is the storage driver of the local cluster. It is the three programs that stand
// beside a CSI driver in a real cluster, on the API alone: there is no driver, and no disk.
//
//	external-provisioner  makes a volume for a claim of its class, and deletes it
//	external-attacher     says that a volume is attached to a node, or is not any more
//	external-resizer      makes a claim and its volume as large as the claim asks for
//
// It writes what those write, in their order: the annotation of who made a volume, finalizers,
// what is attached, conditions of resizing. The binder, the attach-detach controller and what
// protects claims and volumes are the controllers of the cluster, and no part of this program.
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

// run serves until the context ends. The address answers once everything has been seen.
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
