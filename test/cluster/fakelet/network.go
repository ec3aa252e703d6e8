package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podHTTP answers what agnhost's serve-hostname answers: the name of the pod.
func (f *fakelet) podHTTP(w http.ResponseWriter, r *http.Request) {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		ip, _, _ := net.SplitHostPort(a.String())
		objs, _ := f.byIP.ByIndex("ip", ip)
		for _, o := range objs {
			p := o.(*corev1.Pod)
			if strings.HasPrefix(r.URL.Path, "/Consume") {
				f.consume(p, r)
			}
			if r.URL.Path == "/data.json" { // the update-demo images
				img := "nautilus.jpg"
				if strings.Contains(p.Spec.Containers[0].Image, "kitten") {
					img = "kitten.jpg"
				}
				_, _ = io.WriteString(w, `{"image": "`+img+`"}`)
				return
			}
			_, _ = io.WriteString(w, p.Name)
			return
		}
	}
	http.NotFound(w, r)
}

// netTarget finds where a command of an e2e test connects to.
var netTarget = regexp.MustCompile(`(?:nc -v -[tu] -w \d+ (\S+) (\d+))|(?:curl [^|;&]*?(?:http://)?([a-zA-Z0-9.-]+):(\d+)(?:/\S*)?)`)

// connect plays kube-proxy from what the endpoint slice controllers wrote: the name of a pod
// that a service name, cluster IP, node port or pod IP leads to.
func (f *fakelet) connect(ns string, m []string) (string, bool) {
	host, port := m[1], m[2]
	if host == "" {
		host, port = m[3], m[4]
	}
	if objs, _ := f.byIP.ByIndex("ip", host); len(objs) > 0 {
		return objs[0].(*corev1.Pod).Name, true
	}
	p, _ := strconv.Atoi(port)
	svcs, err := f.c.CoreV1().Services("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return "", false
	}
	name := strings.Split(host, ".")
	for i := range svcs.Items {
		s := &svcs.Items[i]
		byName := s.Name == name[0] && ((len(name) == 1 && s.Namespace == ns) || (len(name) > 1 && s.Namespace == name[1]))
		for _, sp := range s.Spec.Ports {
			node := strings.HasPrefix(host, "10.245.") && int(sp.NodePort) == p
			if !node && !((byName || s.Spec.ClusterIP == host) && int(sp.Port) == p) {
				continue
			}
			slices, err := f.c.DiscoveryV1().EndpointSlices(s.Namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + s.Name})
			if err != nil {
				return "", false
			}
			var to []string
			for _, es := range slices.Items {
				for _, ep := range es.Ports {
					if ep.Name == nil || *ep.Name != sp.Name {
						continue
					}
					for _, e := range es.Endpoints {
						if e.Conditions.Ready == nil || *e.Conditions.Ready {
							to = append(to, e.Addresses...)
						}
					}
				}
			}
			if len(to) == 0 {
				return "", false
			}
			objs, _ := f.byIP.ByIndex("ip", to[rand.IntN(len(to))])
			if len(objs) == 0 {
				return "", false
			}
			return objs[0].(*corev1.Pod).Name, true
		}
	}
	return "", false
}
