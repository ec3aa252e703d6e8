package oracle

import (
	"context"
	"encoding/json"
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
	utilfeature "k8s.io/apiserver/pkg/util/feature"
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

// Course is one controller, theirs and ours, of which the ends are compared.
type Course struct {
	Theirs Build
	Ours   reconcile.Any
	// Long is how long upstream's is left alone. Nothing that waits may come due in
	// that time.
	Long time.Duration
}

// Job is the job controller. It is left alone for six seconds, since it looks at pods
// one second after they changed.
var Job = Course{Theirs: buildJobs, Ours: jobs.Controller, Long: 6 * time.Second}

// CronJob is the CronJob controller.
var CronJob = Course{Theirs: buildCronJobs, Ours: cronjobs.Controller, Long: 2 * time.Second}

// TTLAfterFinished is the controller that deletes finished Jobs.
var TTLAfterFinished = Course{Theirs: buildTTL, Ours: ttl.Controller, Long: 2 * time.Second}

// buildJobs makes upstream's job controller, without the gate that waits until its
// own writes come back: the versions of a fake client never do.
func buildJobs(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	if err := utilfeature.DefaultMutableFeatureGate.Set("StaleControllerConsistencyJob=false"); err != nil {
		return nil, fmt.Errorf("set a feature gate: %w", err)
	}
	jm, err := job.NewController(ctx, c, orderedPods{f.Core().V1().Pods()}, f.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make the job controller: %w", err)
	}
	return func() { jm.Run(ctx, 1) }, nil
}

func buildCronJobs(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	cm, err := cronjob.NewControllerV2(ctx, f.Batch().V1().Jobs(), f.Batch().V1().CronJobs(), c)
	if err != nil {
		return nil, fmt.Errorf("make the CronJob controller: %w", err)
	}
	return func() { cm.Run(ctx, 1) }, nil
}

func buildTTL(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	tc := ttlafterfinished.New(ctx, f.Batch().V1().Jobs(), c)
	return func() { tc.Run(ctx, 1) }, nil
}

// Compare leaves both alone with a world and shows how the ends differ; "" when they do
// not.
func (c Course) Compare(t *testing.T, world []runtime.Object) (string, error) {
	theirs, err := c.AskTheirs(t, world)
	if err != nil {
		return "", err
	}
	ours, err := SettleOurs(c.Ours, world, Now)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	return DiffSettled(theirs, ours), nil
}

// AskTheirs leaves upstream's controller alone with a world.
func (c Course) AskTheirs(t *testing.T, world []runtime.Object) (settled Settled, err error) {
	synctest.Test(t, func(*testing.T) {
		settled, err = SettleTheirs(c.Theirs, copied(world), Now, c.Long)
	})
	if err != nil {
		return settled, fmt.Errorf("ask upstream: %w", err)
	}
	return settled, nil
}

// DiffSettled shows what only theirs has with "- " before it and what only ours has
// with "+ ".
//
// Moments after the question are all "now"; objects that were born since have no
// names, since these differ.
func DiffSettled(theirs, ours Settled) string {
	theirs.Told = slices.DeleteFunc(slices.Clone(theirs.Told), func(event string) bool { return slip(event, theirs.Told) })
	a, b := blurred(lines(theirs)), blurred(lines(ours))
	var page strings.Builder
	for _, line := range missing(a, b) {
		fmt.Fprintln(&page, "-", line)
	}
	for _, line := range missing(b, a) {
		fmt.Fprintln(&page, "+", line)
	}
	return page.String()
}

// culprit is the pod that a message blames; of several it is upstream's chance which.
var culprit = regexp.MustCompile(`(?i)pod default/\S+ (failed|has)`)

func blurred(lines []string) []string {
	for i := range lines {
		lines[i] = culprit.ReplaceAllString(lines[i], "pod * $1")
	}
	return lines
}

// slip tells whether upstream says something because it looks at an old copy: it
// deletes again, misses, or is surprised by, what it has deleted.
func slip(event string, told []string) bool {
	if strings.Contains(event, "FailedDelete") && strings.HasSuffix(event, "not found") {
		return true
	}
	for _, about := range []string{"Active job went missing: ", "Saw a job that the controller did not create or forgot: "} {
		if _, name, ok := strings.Cut(event, about); ok {
			return slices.ContainsFunc(told, func(other string) bool { return strings.HasSuffix(other, "Deleted job "+name) })
		}
	}
	return false
}

// missing is what a has more often than b.
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

// lines are what is worth comparing: what controllers write, and who is there.
func lines(s Settled) []string {
	var all []string
	for _, event := range s.Told { // equal Events are one, which counts; those of births differ by the names that are left out
		if strings.Contains(event, "Created pod: ") || !slices.Contains(all, event) {
			all = append(all, event)
		}
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
		born := !obj.(object).GetCreationTimestamp().Time.Before(Now.Truncate(time.Second))
		switch obj := obj.(type) {
		case *corev1.Pod:
			if delete(tree, "status"); born {
				meta["name"] = obj.GenerateName + "*"
			}
		case *batchv1.Job:
			if born { // the API server sets it
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

// timeless writes "now" for every moment since the question.
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
