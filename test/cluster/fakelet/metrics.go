package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// consumption is what pods were told to consume, and until when.
type consumption struct {
	sidecar    bool
	milli, mb  float64
	tMilli, tM time.Time
}

// consume notes what a resource-consumer pod is told to consume: its controller pod (label
// name=<x>-ctrl or <x>-sidecar-ctrl) spreads a total over the pods with label name=<x>,
// any other pod consumes itself.
func (f *fakelet) consume(p *corev1.Pod, r *http.Request) {
	_ = r.ParseForm()
	val := func(k string) float64 { v, _ := strconv.ParseFloat(r.FormValue(k), 64); return v }
	until := time.Now().Add(time.Duration(val("durationSec")) * time.Second)
	name, side := p.Labels["name"], false
	key := p.Namespace + "/" + p.Status.PodIP
	if base, ok := strings.CutSuffix(name, "-sidecar-ctrl"); ok {
		key, side = p.Namespace+"/"+base, true
	} else if base, ok := strings.CutSuffix(name, "-ctrl"); ok {
		key = p.Namespace + "/" + base
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.load[key]
	c.sidecar = side
	if strings.HasSuffix(r.URL.Path, "CPU") {
		c.milli, c.tMilli = val("millicores"), until
	} else if strings.HasSuffix(r.URL.Path, "Mem") {
		c.mb, c.tM = val("megabytes"), until
	}
	f.load[key] = c
}

// metrics serves metrics.k8s.io/v1beta1 for pods.
func (f *fakelet) metrics(w http.ResponseWriter, r *http.Request) {
	const gv = "metrics.k8s.io/v1beta1"
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // apis metrics.k8s.io v1beta1 namespaces <ns> pods [name]
	switch {
	case len(parts) == 3:
		reply(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": []any{
			map[string]any{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": []string{"get", "list"}}}})
	case len(parts) >= 6 && parts[5] == "pods":
		sel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		items := []any{}
		for _, o := range f.byIP.List() {
			p := o.(*corev1.Pod)
			if p.Namespace == parts[4] && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && sel.Matches(labels.Set(p.Labels)) && (len(parts) == 6 || parts[6] == p.Name) {
				items = append(items, f.podMetrics(p))
			}
		}
		if len(parts) > 6 {
			if len(items) == 0 {
				http.NotFound(w, r)
				return
			}
			reply(items[0])
			return
		}
		reply(map[string]any{"kind": "PodMetricsList", "apiVersion": gv, "metadata": map[string]any{}, "items": items})
	default:
		http.NotFound(w, r)
	}
}

// podMetrics is the PodMetrics object of one pod.
func (f *fakelet) podMetrics(p *corev1.Pod) any {
	name := p.Labels["name"]
	n := 0.0
	for _, o := range f.byIP.List() {
		q := o.(*corev1.Pod)
		if q.Namespace == p.Namespace && q.Labels["name"] == name && q.Status.Phase == corev1.PodRunning && q.DeletionTimestamp == nil {
			n++
		}
	}
	now := time.Now()
	f.mu.Lock()
	total, own := f.load[p.Namespace+"/"+name], f.load[p.Namespace+"/"+p.Status.PodIP]
	f.mu.Unlock()
	milli, mb := 0.0, 0.0
	if now.Before(total.tMilli) {
		milli += total.milli / n
	}
	if now.Before(total.tM) {
		mb += total.mb / n
	}
	if now.Before(own.tMilli) {
		milli += own.milli
	}
	if now.Before(own.tM) {
		mb += own.mb
	}
	cs := []any{}
	for _, c := range p.Spec.Containers {
		m, b := milli, mb
		if total.sidecar != strings.HasSuffix(c.Name, "-sidecar") {
			m, b = 0, 0
		}
		if l, ok := c.Resources.Limits[corev1.ResourceCPU]; ok && m > float64(l.MilliValue()) {
			m = float64(l.MilliValue())
		}
		cs = append(cs, map[string]any{"name": c.Name, "usage": map[string]string{"cpu": fmt.Sprintf("%dm", int(m+1)), "memory": fmt.Sprintf("%dMi", int(b+1))}})
	}
	return map[string]any{"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
		"metadata":  map[string]any{"name": p.Name, "namespace": p.Namespace, "labels": p.Labels},
		"timestamp": now.UTC().Format(time.RFC3339), "window": "10s", "containers": cs}
}
