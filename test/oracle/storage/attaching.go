package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	upstream "k8s.io/kubernetes/pkg/controller/volume/attachdetach"
	"k8s.io/kubernetes/pkg/volume/csi"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/attachdetach"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Attaching compares the attaching of volumes in a world: which attachments are created and deleted, what the
// statuses of nodes list in the end, and which pods get the Event that their volume is attached elsewhere.
// Answers of drivers are not part of it.
type Attaching struct {
	World []runtime.Object
	// listed is what nodes list in the end, with our controller.
	listed map[string][]string
	// theirs is what upstream has listed.
	theirs map[string][]string
}

// Compare shows the differences between upstream's first round and our turns, which run until they want
// nothing more; "" if there are none.
func (a *Attaching) Compare(t *testing.T) (diff string, err error) {
	a.theirs = map[string][]string{}
	var effects []effect.Effect
	failed := kcm.WithGates(nil, func() {
		synctest.Test(t, func(*testing.T) { effects, err = frozen.Upstream(a.build, objects.Copied(a.World), objects.Now, false) })
	})
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	theirs, err := a.lines(effects, a.theirs)
	if err != nil {
		return "", err
	}
	ours, err := a.ours()
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	return effect.EqualSets(theirs, ours), nil
}

// patient is longer than upstream waits for a driver's answer.
const patient = 3 * time.Minute

func (a *Attaching) build(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	c.(*fake.Clientset).PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		p := action.(clienttesting.PatchAction)
		node, err := listedAfter(a.World, p.GetName(), p.GetPatch())
		if err == nil {
			a.theirs[p.GetName()] = node
		}
		return false, nil, err
	})
	return buildAttachDetach(ctx, f, c)
}

func buildAttachDetach(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	core, storage := f.Core().V1(), f.Storage().V1()
	// Upstream's handler of pods asks the lister of CSIDrivers, whether that is filled or not: a pod that it sees
	// first keeps a volume attached whose driver wants no attachment.
	storage.CSIDrivers().Informer()
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	adc, err := upstream.NewAttachDetachController(ctx, c, core.Pods(), core.Nodes(), core.PersistentVolumeClaims(), core.PersistentVolumes(),
		storage.CSINodes(), storage.CSIDrivers(), storage.VolumeAttachments(), csi.ProbeVolumePlugins(), nil, false, time.Minute, false, upstream.DefaultTimerConfig)
	if err != nil {
		return nil, fmt.Errorf("make the attach/detach controller: %w", err)
	}
	return func() {
		adc.Run(ctx)
		time.Sleep(patient) // upstream waits for the answers after its round has ended
	}, nil
}

// listedAfter is the list in a node's status after a patch.
func listedAfter(world []runtime.Object, name string, patch []byte) ([]string, error) {
	i := slices.IndexFunc(world, func(o runtime.Object) bool { n, ok := o.(*corev1.Node); return ok && n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no node %s", name)
	}
	text, err := json.Marshal(world[i])
	if err != nil {
		return nil, err
	}
	if text, err = strategicpatch.StrategicMergePatch(text, patch, &corev1.Node{}); err != nil {
		return nil, fmt.Errorf("merge the patch: %w", err)
	}
	var next corev1.Node
	if err := json.Unmarshal(text, &next); err != nil {
		return nil, err
	}
	return namesListed(&next), nil
}

func namesListed(n *corev1.Node) (names []string) {
	for _, v := range n.Status.VolumesAttached {
		names = append(names, string(v.Name))
	}
	slices.Sort(names)
	return names
}

// lines are the compared lines. If several nodes want a volume that can be attached to one, upstream picks
// one in the order of a map.
func (a *Attaching) lines(effects []effect.Effect, listed map[string][]string) (lines []string, err error) {
	for _, e := range effects {
		switch {
		case e.Verb == effect.Create && e.Resource == "volumeattachments":
			var made storagev1.VolumeAttachment
			if err := json.Unmarshal([]byte(e.Body), &made); err != nil {
				return nil, fmt.Errorf("read an attachment: %w", err)
			}
			volume := *made.Spec.Source.PersistentVolumeName
			if a.contested(volume) {
				exemption.Uses("any-of-the-nodes")
				lines = append(lines, "attach "+volume+" to any node")
				continue
			}
			lines = append(lines, fmt.Sprintf("attach %s to %s by %s as %s", volume, made.Spec.NodeName, made.Spec.Attacher, e.Name))
		case e.Verb == effect.Remove:
			lines = append(lines, "detach "+e.Name)
		case e.Verb == effect.Event && strings.Contains(e.Body, "Multi-Attach"):
			lines = append(lines, e.Name+": "+sortedNames(e.Body))
		}
	}
	for _, obj := range a.World {
		if n, ok := obj.(*corev1.Node); ok {
			names, patched := listed[n.Name]
			if !patched {
				names = namesListed(n)
			}
			lines = append(lines, n.Name+" lists "+strings.Join(names, " "))
		}
	}
	return lines, nil
}

// sortedNames sorts the pods that a message names, because upstream names them in the order of a map.
func sortedNames(message string) string {
	before, names, ok := strings.Cut(message, "pod(s) ")
	if !ok {
		return message
	}
	all := strings.Split(names, ", ")
	slices.Sort(all)
	return before + "pod(s) " + strings.Join(all, ", ")
}

// contested reports whether pods on several nodes use a volume that can be attached to one.
func (a *Attaching) contested(volume string) bool {
	nodes := map[string]bool{}
	for _, obj := range a.World {
		switch o := obj.(type) {
		case *corev1.PersistentVolume:
			if o.Name == volume && (len(o.Spec.AccessModes) == 0 || o.Spec.AccessModes[0] != corev1.ReadWriteOnce) {
				return false
			}
		case *corev1.Pod:
			if strings.HasSuffix(volume, o.Spec.Volumes[0].PersistentVolumeClaim.ClaimName) {
				nodes[o.Spec.NodeName] = true
			}
		}
	}
	return len(nodes) > 1
}

// ours are the lines of our controller's turns: of the nodes, then of the volumes, until they want nothing
// more. An attachment that is being deleted stays, as it does until the attacher removes its finalizer.
func (a *Attaching) ours() ([]string, error) {
	a.listed = map[string][]string{}
	world, notes := objects.Copied(a.World), map[events.Key]events.Outcome{}
	var all []effect.Effect
	for range 6 {
		wanted := 0
		for _, key := range attachingKeys(world) {
			seen, err := frozen.Snapshot(world)
			if err != nil {
				return nil, err
			}
			if last, ok := notes[key]; ok {
				seen.Remember(last)
			}
			d, ok := attachdetach.Controller.Ask(seen, key, objects.Now)
			if !ok {
				continue
			}
			if err := frozen.Promised(attachdetach.Controller.Describe(), key, seen, d); err != nil {
				return nil, err
			}
			for _, c := range d.Commands {
				wanted++
				if world, err = a.carryOut(world, key, c, notes); err != nil {
					return nil, err
				}
			}
			effects, err := frozen.EffectsOf(d)
			if err != nil {
				return nil, err
			}
			all = append(all, effects...)
		}
		if wanted == 0 {
			return a.lines(all, a.listed)
		}
	}
	return nil, errors.New("it always wants something")
}

// attachingKeys are the keys of all nodes and volumes.
func attachingKeys(world []runtime.Object) (keys []events.Key) {
	for _, obj := range world {
		if n, ok := obj.(*corev1.Node); ok {
			keys = append(keys, events.Key{Kind: kinds.Nodes.Name, Name: n.Name})
		}
	}
	for _, obj := range world {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			keys = append(keys, events.Key{Name: pv.Name})
		}
	}
	return keys
}

func (a *Attaching) carryOut(world []runtime.Object, key events.Key, c events.Command, notes map[events.Key]events.Outcome) ([]runtime.Object, error) {
	if c.Lane() == events.LaneStatus {
		o := events.Outcome{Key: key, Lane: events.LaneStatus, Decided: objects.Now, At: objects.Now, Results: []events.Result{{Status: events.Applied, Answer: &events.Answer{Note: c.Note}}}}
		for _, obj := range world {
			if m := obj.(objects.Object); m.GetName() == key.Name {
				o.UID = m.GetUID()
			}
		}
		if len(c.Note) > 0 {
			notes[key] = o
		}
	}
	switch c.Verb {
	case events.VerbPatch:
		names, err := listedAfter(world, c.Name, c.Body)
		if err != nil {
			return nil, err
		}
		a.listed[c.Name] = names
		for _, obj := range world {
			if n, ok := obj.(*corev1.Node); ok && n.Name == c.Name {
				n.Status.VolumesAttached = nil
				for _, name := range names {
					n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
				}
			}
		}
	case events.VerbDelete:
		for _, obj := range world {
			if at, ok := obj.(*storagev1.VolumeAttachment); ok && at.Name == c.Name {
				at.DeletionTimestamp, at.Finalizers = &metav1.Time{Time: objects.Now}, []string{"example.com/attacher"}
			}
		}
	case events.VerbCreate:
		made := &storagev1.VolumeAttachment{}
		if err := json.Unmarshal(c.Body, made); err != nil {
			return nil, fmt.Errorf("read an attachment: %w", err)
		}
		made.Name, made.UID, made.CreationTimestamp = c.Name, "made", metav1.NewTime(objects.Now)
		world = append(world, made)
	}
	return world, nil
}
