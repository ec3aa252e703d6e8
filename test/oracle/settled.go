package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"

	cronjobs "github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	jobs "github.com/millrace/millrace/services/reconcilers/controllers/job"
	ttl "github.com/millrace/millrace/services/reconcilers/controllers/ttlafterfinished"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Course is one controller, upstream's and ours, whose ends are compared.
type Course struct {
	Theirs Build
	Ours   reconcile.Any
	// Long is how long upstream's runs. Nothing that waits may become due in that time.
	Long time.Duration
	// Mask removes from a line what either may report differently in this world; nil: nothing.
	Mask func(world []runtime.Object, line string) string
}

// Job is the job controller. It runs for six seconds, because it syncs one second after a pod has changed.
var Job = Course{Theirs: buildJobs, Ours: jobs.Controller, Long: 6 * time.Second, Mask: blames}

// CronJob is the CronJob controller.
var CronJob = Course{Theirs: buildCronJobs, Ours: cronjobs.Controller, Long: 2 * time.Second}

// TTLAfterFinished is the controller that deletes finished Jobs.
var TTLAfterFinished = Course{Theirs: buildTTL, Ours: ttl.Controller, Long: 2 * time.Second}

// buildJobs makes upstream's job controller.
func buildJobs(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	jm, err := job.NewController(ctx, c, orderedPods{f.Core().V1().Pods()}, f.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make the job controller: %w", err)
	}
	return func() { jm.Run(ctx, 1) }, nil
}

func buildCronJobs(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	p := newPatience()
	cm, err := cronjob.NewControllerV2(ctx, patientJobs{f.Batch().V1().Jobs(), p}, patientCronJobs{f.Batch().V1().CronJobs(), p}, c)
	if err != nil {
		return nil, fmt.Errorf("make the CronJob controller: %w", err)
	}
	return func() { cm.Run(ctx, 1) }, nil
}

func buildTTL(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	tc := ttlafterfinished.New(ctx, f.Batch().V1().Jobs(), c)
	return func() { tc.Run(ctx, 1) }, nil
}

// Compare runs both in a world and shows the differences of their ends; "" if there are none.
func (c Course) Compare(t *testing.T, world []runtime.Object) (string, error) {
	theirs, err := c.AskTheirs(t, world)
	if err != nil {
		return "", err
	}
	ours, err := SettleOurs(c.Ours, world, Now)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	mask := func(line string) string { return line }
	if c.Mask != nil {
		mask = func(line string) string { return c.Mask(world, line) }
	}
	return diffSettled(theirs, ours, mask), nil
}

// AskTheirs runs upstream's controller in a world.
func (c Course) AskTheirs(t *testing.T, world []runtime.Object) (settled Settled, err error) {
	failed := under(nil, func() {
		synctest.Test(t, func(*testing.T) {
			settled, err = SettleTheirs(c.Theirs, copied(world), Now, c.Long)
		})
	})
	if err = errors.Join(failed, err); err != nil {
		return settled, fmt.Errorf("ask upstream: %w", err)
	}
	return settled, nil
}

// diffSettled marks the lines of theirs only with "- " and those of ours only with "+ ".
//
// Times after the start are all "now"; objects that were created since have no names, because these differ.
func diffSettled(theirs, ours Settled, mask func(string) string) string {
	ours.Removed = freer(theirs.Removed, ours.Removed)
	a, b := masked(lines(theirs), mask), masked(lines(ours), mask)
	var page strings.Builder
	for _, line := range missing(a, b) {
		fmt.Fprintln(&page, "-", line)
	}
	for _, line := range missing(b, a) {
		fmt.Fprintln(&page, "+", line)
	}
	return page.String()
}

// culprit matches the part of a message that names the blamed pod.
var culprit = regexp.MustCompile(`(Container \S+ for pod \S+ failed with exit code \d+|Pod \S+ has condition \w+) matching FailJob rule at index \d+`)

// blames removes the name of the blamed pod if that may be one that waited for adoption: upstream adopts and
// decides in one sync, and checks its own pods before those that it adopts. Ours decides when all pods are
// the Job's, in the order of their names.
func blames(world []runtime.Object, line string) string {
	if !slices.ContainsFunc(world, waits) {
		return line
	}
	if culprit.MatchString(line) {
		Uses("which-pod-is-blamed")
	}
	return culprit.ReplaceAllString(line, "a pod is blamed")
}

// waits reports whether an object is a failed pod without a controller.
func waits(obj runtime.Object) bool {
	p, ok := obj.(*corev1.Pod)
	return ok && p.Status.Phase == corev1.PodFailed && len(p.OwnerReferences) == 0
}

func masked(lines []string, mask func(string) string) []string {
	for i := range lines {
		lines[i] = mask(lines[i])
	}
	return lines
}

// missing are the lines that are more often in a than in b.
func missing(a, b []string) []string {
	left := slices.Clone(b)
	var out []string
	for _, line := range a {
		if at := slices.Index(left, line); at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		out = append(out, line)
	}
	return out
}

// lines are the compared parts: the fields that controllers write, and the set of objects.
func lines(s Settled) []string {
	var all []string
	for _, event := range s.Told { // equal Events are one with a count; those of creates differ only by the names that are left out
		if strings.Contains(event, "Created pod: ") || !slices.Contains(all, event) {
			all = append(all, event)
		}
	}
	for _, e := range unrepeated(s.Removed) {
		all = append(all, e.String())
	}
	for _, obj := range s.World {
		body, err := json.Marshal(obj)
		if err != nil {
			panic(err) // an API object
		}
		tree := parsed(body)
		meta := tree["metadata"].(map[string]any)
		for _, field := range []string{"resourceVersion", "managedFields", "uid", "generation"} {
			delete(meta, field)
		}
		created := !obj.(object).GetCreationTimestamp().Time.Before(Now.Truncate(time.Second))
		switch obj := obj.(type) {
		case *corev1.Pod:
			if delete(tree, "status"); created {
				meta["name"] = obj.GenerateName + "*"
			}
		case *batchv1.Job:
			if created { // the API server sets it
				delete(meta, "creationTimestamp")
			}
		case *batchv1.CronJob:
			if active, ok := tree["status"].(map[string]any)["active"].([]any); ok {
				for _, ref := range active {
					delete(ref.(map[string]any), "resourceVersion")
				}
			}
		}
		all = append(all, resourceOf(obj)+" "+text(said(timeless(tree))))
	}
	return all
}

// timeless replaces every time since the start by "now".
func timeless(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = timeless(item)
		}
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && !at.Before(Now.Truncate(time.Second)) {
			return "now"
		}
	}
	return value
}
