package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamlabels "k8s.io/kubernetes/pkg/controller/volume/selinuxwarning"
	volumecache "k8s.io/kubernetes/pkg/controller/volume/selinuxwarning/cache"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/fc"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/iscsi"
	"k8s.io/kubernetes/pkg/volume/nfs"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/selinuxwarning"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/settle"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// Labels is the controller that warns of pods which cannot share a volume on a node with SELinux. Its Events
// and the conflicts in its metric are compared.
type Labels struct {
	cache volumecache.VolumeCache
}

// labelled are the kinds that it reads.
var labelled = []kinds.Kind{kinds.CSIDrivers.Kind, kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind}

// build makes upstream's controller with the plugins that kube-controller-manager gives it.
func (l *Labels) build(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	plugins := slices.Concat(hostpath.ProbeVolumePlugins(volume.VolumeConfig{}), nfs.ProbeVolumePlugins(volume.VolumeConfig{}),
		fc.ProbeVolumePlugins(), iscsi.ProbeVolumePlugins(), csi.ProbeVolumePlugins())
	core := f.Core().V1()
	lc, err := upstreamlabels.NewController(ctx, c, core.Pods(), core.PersistentVolumeClaims(), core.PersistentVolumes(), f.Storage().V1().CSIDrivers(), plugins, nil)
	if err != nil {
		return nil, fmt.Errorf("make the controller of labels: %w", err)
	}
	l.cache = kcm.Field(lc, "labelCache").(volumecache.VolumeCache)
	return func() { lc.Run(ctx, 1) }, nil
}

// shown are the conflicts in upstream's metric.
func (l *Labels) shown() (lines []string) {
	for _, c := range l.cache.GetConflicts(logr.Discard()) {
		lines = append(lines, "conflict "+strings.Join([]string{c.PropertyName, c.Pod.Namespace, c.Pod.Name, c.PropertyValue, c.OtherPod.Namespace, c.OtherPod.Name, c.OtherPropertyValue}, " "))
	}
	return lines
}

// conflictLines are the conflicts that a decision counts.
func conflictLines(figures []reconcile.Figure) (lines []string) {
	for _, f := range figures {
		lines = append(lines, "conflict "+strings.Join(f.Labels, " "))
	}
	return lines
}

// Compare shows the differences about a world that does not change; "" if there are none.
func (l *Labels) Compare(t *testing.T, world []runtime.Object) (diff string, err error) {
	var effects []effect.Effect
	failed := kcm.WithGates(nil, func() {
		synctest.Test(t, func(*testing.T) { effects, err = frozen.Upstream(l.build, objects.Copied(world), objects.Now, false) })
	})
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	theirs := l.shown()
	for _, e := range effects {
		theirs = append(theirs, e.String())
	}
	ours, err := settledLabels(world)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	return effect.EqualSets(theirs, ours), nil
}

// settledLabels are the lines of all our turns; the second turn of each key must want nothing.
func settledLabels(world []runtime.Object) (lines []string, err error) {
	seen, err := frozen.Snapshot(world)
	if err != nil {
		return nil, err
	}
	given := map[events.Key]bool{}
	for _, kind := range labelled {
		for _, obj := range seen.List(kind.Name, "") {
			for _, key := range seen.Keys(selinuxwarning.Controller, kind, nil, obj) {
				given[key] = true
			}
		}
	}
	for key := range given {
		more, err := toldOnce(seen, key)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func toldOnce(seen *reconciletest.World, key events.Key) (lines []string, err error) {
	d, ok := selinuxwarning.Controller.Ask(seen, key, objects.Now)
	if !ok {
		return nil, nil
	}
	if err := frozen.Promised(selinuxwarning.Controller.Describe(), key, seen, d); err != nil {
		return nil, err
	}
	effects, err := frozen.EffectsOf(d)
	if err != nil {
		return nil, err
	}
	for _, e := range effects {
		lines = append(lines, e.String())
	}
	if len(d.Commands) > 0 {
		o := events.Outcome{Key: key, Lane: events.LaneStatus, At: objects.Now, Results: []events.Result{{Answer: &events.Answer{Note: d.Commands[0].Note}}}}
		if own, there := seen.Get(kinds.Pods.Name, key.Namespace, key.Name); there {
			o.UID = own.GetUID()
		}
		seen.Remember(o)
		if again, _ := selinuxwarning.Controller.Ask(seen, key, objects.Now); len(again.Commands) > 0 {
			return nil, fmt.Errorf("%v: %w", key, settle.ErrRestless)
		}
	}
	return append(lines, conflictLines(d.Figures)...), nil
}

// span is how long both run undisturbed after a change: upstream retries unknown facts within a thousand
// seconds, and after three hours its recorder again passes all Events about a pod.
const span = 3 * time.Hour

// Live shows the differences while the world changes, chapter by chapter. Upstream's Events between two
// states of a driver, when it has processed one pod and not the other, are left out: the two never conflict.
func (l *Labels) Live(t *testing.T, chapters []func(*apiserver.API)) (diff string, err error) {
	var shown, told [][]string
	failed := kcm.WithGates(nil, func() { synctest.Test(t, func(*testing.T) { shown, told, err = l.theirs(chapters) }) })
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	a := &stage.Actor{Controller: selinuxwarning.Controller, Now: objects.Now}
	a.Stage = stage.NewStage(func() time.Time { return a.Now }, labelled...)
	a.Begin(labelled...)
	for i, chapter := range chapters {
		a.Stage.Do(chapter)
		if err := a.Until(a.Now.Add(span)); err != nil {
			return "", fmt.Errorf("ask ours: %w", err)
		}
		if diff := effect.EqualSets(shown[i], conflictsSeen(a)); diff != "" {
			return fmt.Sprintf("after chapter %d:\n%s", i, diff), nil
		}
		theirs := exemption.LetLines("conflict-on-the-way", told[i], func(line string) string {
			if !slices.Contains(a.Stage.Told, line) && strings.Contains(line, " conflicts with ") {
				return ""
			}
			return line
		})
		if diff := effect.EqualSets(theirs, a.Stage.Told); diff != "" {
			return fmt.Sprintf("told until chapter %d:\n%s", i, diff), nil
		}
	}
	return "", nil
}

// conflictsSeen are the conflicts that all keys count in the present world.
func conflictsSeen(a *stage.Actor) (lines []string) {
	given := map[events.Key]bool{}
	for _, obj := range a.See.List(kinds.Pods.Name, "") {
		for _, key := range a.See.Keys(selinuxwarning.Controller, kinds.Pods.Kind, nil, obj) {
			if d, ok := selinuxwarning.Controller.Ask(a.See, key, a.Now); ok && !given[key] {
				given[key], lines = true, append(lines, conflictLines(d.Figures)...)
			}
		}
	}
	return lines
}

func (l *Labels) theirs(chapters []func(*apiserver.API)) (shown, told [][]string, err error) {
	time.Sleep(time.Until(objects.Now))
	s := stage.NewStage(time.Now, labelled...)
	err = s.RunUpstream(l.build, func() {
		for _, chapter := range chapters {
			s.Do(chapter)
			time.Sleep(span)
			synctest.Wait()
			s.Do(func(*apiserver.API) { shown, told = append(shown, l.shown()), append(told, slices.Clone(s.Told)) })
		}
	})
	return shown, told, err
}
