package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

// crowd groups the pods by how their metrics count.
type crowd struct {
	used    map[string]int64 // in thousandths, of the pods that count
	ready   int
	unready []string // pending, or still starting
	missing []string // without a sample
}

var errUnready = errors.New("did not receive metrics for targeted pods (pods might be unready)")

// crowd groups the pods by how the samples of a resource count, or of another metric if of is empty.
//
// Upstream: groupPods.
func (j judged) crowd(of corev1.ResourceName) (crowd, error) {
	if len(j.view.Pods) == 0 {
		return crowd{}, errNoPods
	}
	c, samples := crowd{used: map[string]int64{}}, map[string]query.Sample{}
	for _, s := range j.reading.Samples {
		samples[s.Pod], c.used[s.Pod] = s, s.Milli
	}
	for _, p := range j.view.Pods {
		s, known := samples[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
			delete(c.used, p.Name)
		case p.Status.Phase == corev1.PodPending:
			c.unready = append(c.unready, p.Name)
			delete(c.used, p.Name)
		case !known:
			c.missing = append(c.missing, p.Name)
		case of == corev1.ResourceCPU && j.config.starting(p, s, j.now):
			c.unready = append(c.unready, p.Name)
			delete(c.used, p.Name)
		default:
			c.ready++
		}
	}
	if len(c.used) == 0 {
		return crowd{}, errUnready
	}
	return c, nil
}

// starting reports whether a pod's CPU usage may be that of its start. Within Startup: the
// pod is not ready, or its sample does not cover a whole window since it became ready.
// Later: the pod was never ready.
func (c Config) starting(p *corev1.Pod, s query.Sample, now time.Time) bool {
	at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if at < 0 || p.Status.StartTime == nil {
		return true
	}
	ready, start := p.Status.Conditions[at], p.Status.StartTime.Time
	unready, since := ready.Status == corev1.ConditionFalse, ready.LastTransitionTime.Time
	if start.Add(c.Startup).After(now) {
		var measured time.Time
		if s.At != nil {
			measured = s.At.Time
		}
		return unready || measured.Before(since.Add(time.Duration(s.Window*float64(time.Second))))
	}
	return unready && start.Add(c.Readiness).After(since)
}

// fill assumes values for the remaining pods that oppose the change. Pods without a
// sample use the maximum when scaling down, and nothing when scaling up. Unready pods use
// nothing when scaling up.
func (c *crowd) fill(ratio float64, most func(name string) int64) {
	for _, name := range c.missing {
		switch {
		case ratio < 1:
			c.used[name] = most(name)
		case ratio > 1:
			c.used[name] = 0
		}
	}
	if ratio > 1 {
		for _, name := range c.unready {
			c.used[name] = 0
		}
	}
}

// count returns the number of replicas that a crowd needs: the number from the pods with
// complete data, unless the assumptions about the others reverse or cancel the change.
//
// Upstream: the common end of GetResourceReplicas and calcPlainMetricReplicas.
func (j judged) count(c *crowd, ratio float64, most func(string) int64, again func() (float64, error)) (int32, error) {
	if len(c.missing) == 0 && (len(c.unready) == 0 || ratio <= 1) {
		if j.band.holds(ratio) {
			return j.wanted(), nil
		}
		return ceil(ratio * float64(c.ready)), nil
	}
	c.fill(ratio, most)
	anew, err := again()
	if err != nil {
		return 0, err
	}
	if j.band.holds(anew) || ratio < 1 && anew > 1 || ratio > 1 && anew < 1 {
		return j.wanted(), nil
	}
	n := ceil(anew * float64(len(c.used)))
	if anew < 1 && n > j.wanted() || anew > 1 && n < j.wanted() {
		return j.wanted(), nil // the number of pods differs from the wanted one
	}
	return n, nil
}

// average returns the number of replicas at which the average usage of each pod meets the
// target, and the present average.
func (j judged) average(target int64, of corev1.ResourceName) (replicas int32, usage int64, err error) {
	c, err := j.crowd(of)
	if err != nil {
		return 0, 0, err
	}
	mean := func() int64 {
		sum := int64(0)
		for _, used := range c.used {
			sum += used
		}
		return sum / int64(len(c.used))
	}
	usage = mean()
	replicas, err = j.count(&c, float64(usage)/float64(target), func(string) int64 { return target }, func() (float64, error) {
		return float64(mean()) / float64(target), nil
	})
	return replicas, usage, err
}

// utilization returns the number of replicas at which the pods, or one container of each,
// use the target percentage of their requests, the present percentage, and the average usage.
func (j judged) utilization(target int32, of corev1.ResourceName, container string) (replicas, share int32, usage int64, err error) {
	c, err := j.crowd(of)
	if err != nil {
		return 0, 0, 0, err
	}
	requests, err := j.requests(of, container)
	if err != nil {
		return 0, 0, 0, err
	}
	if share, usage, err = c.share(requests); err != nil {
		return 0, 0, 0, err
	}
	most := func(name string) int64 { return requests[name] * int64(max(100, target)) / 100 }
	replicas, err = j.count(&c, float64(share)/float64(target), most, func() (float64, error) {
		anew, _, err := c.share(requests)
		return float64(anew) / float64(target), err
	})
	return replicas, share, usage, err
}

// share returns the pods' usage in per cent of their requests, and the average usage of a pod.
func (c *crowd) share(requests map[string]int64) (percent int32, each int64, err error) {
	var used, requested, pods int64
	for name, n := range c.used {
		if request, ok := requests[name]; ok {
			used, requested, pods = used+n, requested+request, pods+1
		}
	}
	if requested == 0 {
		return 0, 0, errors.New("no metrics returned matched known pods")
	}
	return int32(used * 100 / requested), used / pods, nil
}

// requests returns how much of a resource each pod, or one of its containers, requests.
// If several pods lack a request, the error names the first by name.
//
// Upstream: calculateRequests.
func (j judged) requests(of corev1.ResourceName, container string) (map[string]int64, error) {
	var (
		requests = make(map[string]int64, len(j.view.Pods))
		blamed   *corev1.Pod
		failure  error
	)
	for _, p := range j.view.Pods {
		request, err := j.config.requestOf(p, of, container)
		if err != nil && (blamed == nil || p.Name < blamed.Name) {
			blamed, failure = p, err
		}
		requests[p.Name] = request
	}
	if failure != nil {
		return nil, failure
	}
	return requests, nil
}

func (c Config) requestOf(p *corev1.Pod, of corev1.ResourceName, container string) (sum int64, err error) {
	if container == "" && c.Gates.On(gate.PodLevelResources) && podresource.IsPodLevelRequestsSet(p) {
		whole := podresource.PodRequests(p, podresource.PodResourcesOptions{})
		request, ok := whole[of]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", of, p.Name)
		}
		return request.MilliValue(), nil
	}
	containers := slices.Clone(p.Spec.Containers)
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.Sidecar(c) {
			containers = append(containers, *c)
		}
	}
	for i := range containers {
		c := &containers[i]
		if container != "" && c.Name != container {
			continue
		}
		request, ok := c.Resources.Requests[of]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", of, c.Name, p.Name)
		}
		if sum += request.MilliValue(); container != "" {
			return sum, nil
		}
	}
	if container != "" {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, p.Name)
	}
	return sum, nil
}
