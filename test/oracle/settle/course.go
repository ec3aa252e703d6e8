package settle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Course is one controller, upstream's and ours, whose ends are compared.
type Course struct {
	Theirs kcm.Build
	Ours   reconcile.Any
	// Long is how long upstream's runs. Nothing that waits may become due in that time.
	Long time.Duration
	// Mask removes from a line what either may report differently in this world; nil: nothing.
	Mask func(world []runtime.Object, line string) string
}

// Compare runs both in a world and shows the differences of their ends; "" if there are none.
func (c Course) Compare(t *testing.T, world []runtime.Object) (string, error) {
	theirs, err := c.AskTheirs(t, world)
	if err != nil {
		return "", err
	}
	ours, err := SettleOurs(c.Ours, world, objects.Now)
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
	failed := kcm.WithGates(nil, func() {
		synctest.Test(t, func(*testing.T) {
			settled, err = SettleTheirs(c.Theirs, objects.Copied(world), objects.Now, c.Long)
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
	ours.Removed = effect.WithoutExtraConditions(theirs.Removed, ours.Removed)
	a, b := masked(Lines(theirs), mask), masked(Lines(ours), mask)
	var page strings.Builder
	for _, line := range effect.Missing(a, b) {
		fmt.Fprintln(&page, "-", line)
	}
	for _, line := range effect.Missing(b, a) {
		fmt.Fprintln(&page, "+", line)
	}
	return page.String()
}

func masked(lines []string, mask func(string) string) []string {
	for i := range lines {
		lines[i] = mask(lines[i])
	}
	return lines
}

// Lines are the compared parts: the fields that controllers write, and the set of objects.
func Lines(s Settled) []string {
	var all []string
	for _, event := range s.Told { // equal Events are one with a count; those of creates differ only by the names that are left out
		if strings.Contains(event, "Created pod: ") || !slices.Contains(all, event) {
			all = append(all, event)
		}
	}
	for _, e := range effect.Unique(s.Removed) {
		all = append(all, e.String())
	}
	for _, obj := range s.World {
		body, err := json.Marshal(obj)
		if err != nil {
			panic(err) // an API object
		}
		tree := effect.Parse(body)
		meta := tree["metadata"].(map[string]any)
		for _, field := range []string{"resourceVersion", "managedFields", "uid", "generation"} {
			delete(meta, field)
		}
		created := !obj.(objects.Object).GetCreationTimestamp().Time.Before(objects.Now.Truncate(time.Second))
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
		all = append(all, objects.ResourceOf(obj)+" "+effect.JSON(effect.NonEmpty(Timeless(tree))))
	}
	return all
}

// Timeless replaces every time since the start by "now".
func Timeless(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = Timeless(item)
		}
	case []any:
		for i := range v {
			v[i] = Timeless(v[i])
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && !at.Before(objects.Now.Truncate(time.Second)) {
			return "now"
		}
	}
	return value
}
