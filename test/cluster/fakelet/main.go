// Command fakelet is the part of a simulated node that kwok does not play: the
// kubelet's HTTPS endpoints (exec, logs) for the few shell commands that
// Kubernetes' own end-to-end tests run in pods to turn readiness on and off,
// jobs that remember a file between runs, an HTTP answer on every pod address, and a
// metrics server (metrics.k8s.io) that reports what the autoscaling tests ask
// their pods to consume. It plays nodes and metrics, never a controller.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// fakelet is every simulated kubelet at once.
type fakelet struct {
	c    kubernetes.Interface
	byIP cache.Indexer

	mu   sync.Mutex
	vol  map[string]map[string]bool // volume -> files
	seen map[string]bool            // pod uid + run: step done
	load map[string]consumption     // namespace/name label, or namespace/pod IP -> what its pods consume
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	listen := flag.String("listen", "127.0.0.1:10250", "address of the kubelet endpoints")
	cert := flag.String("cert", "", "certificate file of the kubelet endpoints")
	key := flag.String("key", "", "key file of the kubelet endpoints")
	metrics := flag.String("metrics", "", "address of the metrics API (empty: none)")
	podPorts := flag.String("pod-ports", "", "HTTP ports answered on every pod address, e.g. 80,8080 (empty: none); they listen on all addresses")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	f := &fakelet{
		c:   kubernetes.NewForConfigOrDie(config),
		vol: map[string]map[string]bool{}, seen: map[string]bool{}, load: map[string]consumption{},
	}
	f.watch(context.Background())

	for port := range strings.SplitSeq(*podPorts, ",") {
		if port != "" {
			l := open(net.JoinHostPort("0.0.0.0", port))
			go func() { log.Fatal(http.Serve(l, http.HandlerFunc(f.podHTTP))) }()
		}
	}
	if *metrics != "" {
		l := open(*metrics)
		go func() { log.Fatal(http.ServeTLS(l, http.HandlerFunc(f.metrics), *cert, *key)) }()
	}
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, f.kubelet()))
}

// open listens on an address of pods or nodes. Those are the same in each cluster, so that
// another one would answer for the pods of this one.
func open(address string) net.Listener {
	l, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatalf("answer for pods and nodes: %v; is there another cluster with --e2e on this machine, or another server on this port? Stop it first", err)
	}
	return l
}

// watch starts to follow pods, and returns once it has seen them all.
func (f *fakelet) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(f.c, 0)
	pods := factory.Core().V1().Pods().Informer()
	_ = pods.AddIndexers(cache.Indexers{"ip": func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Status.PodIP}, nil }})
	f.byIP = pods.GetIndexer()
	_, _ = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.pod(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { f.pod(o.(*corev1.Pod)) },
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

// kubelet is what the API server asks of a node.
func (f *fakelet) kubelet() http.Handler {
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", f.exec)
	mux.HandleFunc("/containerLogs/", say("a simulated container writes no log\n"))
	mux.HandleFunc("/pods", say(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
	mux.HandleFunc("/healthz", say("ok"))
	return mux
}
