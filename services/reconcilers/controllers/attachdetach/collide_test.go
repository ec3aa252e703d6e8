package attachdetach

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// small is a cluster of two ready nodes and one volume that may be attached to one of
// them, with pods, kubelets and the driver's attacher, which all act at arbitrary times.
type small struct {
	*scene
	pods     map[string]*corev1.Pod
	nodes    map[string]*corev1.Node
	at       map[string]*storagev1.VolumeAttachment
	mounted  map[string]bool
	notes    map[events.Key]events.Outcome
	inFlight map[events.Key][]events.Command
	made     int
}

func newSmall() *small {
	s := &small{scene: newScene(), pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, at: map[string]*storagev1.VolumeAttachment{},
		mounted: map[string]bool{}, notes: map[events.Key]events.Outcome{}, inFlight: map[events.Key][]events.Command{}}
	s.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	for _, name := range []string{"node-1", "node-2"} {
		n := s.node.DeepCopy()
		n.Name, n.UID, n.ResourceVersion = name, types.UID(name), "1"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		s.nodes[name] = n
	}
	return s
}

func (s *small) world() *reconciletest.World {
	w := reconciletest.NewWorld(kinds.CSIDrivers.Kind, kinds.VolumeAttachments.Kind, kinds.Pods.Kind).
		Put(kinds.PersistentVolumes.Kind, s.pv).Put(kinds.PersistentVolumeClaims.Kind, s.claim)
	for _, p := range s.pods {
		w.Put(kinds.Pods.Kind, p)
	}
	for _, n := range s.nodes {
		w.Put(kinds.Nodes.Kind, n)
	}
	for _, a := range s.at {
		w.Put(kinds.VolumeAttachments.Kind, a)
	}
	return w
}

// turn takes one turn of a key. Its acting commands are carried out later, and until then
// the key neither reports nor acts, as in the engine for a decision with Sure.
func (s *small) turn(k events.Key) {
	if len(s.inFlight[k]) > 0 {
		return
	}
	seen := s.world()
	if last, ok := s.notes[k]; ok {
		seen.Remember(last)
	}
	d, ok := Controller.Ask(seen, k, now)
	if !ok {
		return
	}
	for _, c := range d.In(events.LaneStatus).Commands {
		s.report(k, c)
	}
	s.inFlight[k] = d.In(events.LaneWrite).Commands
}

func (s *small) report(k events.Key, c events.Command) {
	if len(c.Note) > 0 {
		s.notes[k] = events.Outcome{Key: k, Lane: events.LaneStatus, UID: s.pv.UID, Decided: now, Results: []events.Result{{Answer: &events.Answer{Note: c.Note}}}}
	}
	if n := s.nodes[c.Name]; c.Verb == events.VerbPatch && c.If.ResourceVersion == n.ResourceVersion {
		next := n.DeepCopy()
		next.Status.VolumesAttached = nil
		if err := json.Unmarshal(c.Body, &struct{ Status *corev1.NodeStatus }{&next.Status}); err != nil {
			panic(err)
		}
		s.put(next)
	}
}

// put stores a node in the API server.
func (s *small) put(n *corev1.Node) {
	s.made++
	n.ResourceVersion = fmt.Sprint(s.made + 1)
	s.nodes[n.Name] = n
}

// carryOut carries out the commands of a turn. It fails if a detach affects a volume that
// a kubelet has mounted.
func (s *small) carryOut(k events.Key) error {
	defer delete(s.inFlight, k)
	for _, c := range s.inFlight[k] {
		switch a := s.at[c.Name]; {
		case c.Verb == events.VerbCreate && a == nil:
			made := &storagev1.VolumeAttachment{}
			if err := json.Unmarshal(c.Body, made); err != nil {
				return err
			}
			s.made++
			made.Name, made.UID = c.Name, types.UID(fmt.Sprint("uid-", s.made))
			s.at[c.Name] = made
		case c.Verb == events.VerbDelete && a != nil && a.UID == c.If.UID:
			if s.mounted[a.Spec.NodeName] {
				return fmt.Errorf("the volume is detached from %s, which has mounted it", a.Spec.NodeName)
			}
			next := a.DeepCopy()
			next.DeletionTimestamp = &metav1.Time{Time: now}
			s.at[c.Name] = next
		}
	}
	return nil
}

// answer makes the attacher do one requested operation.
func (s *small) answer() error {
	for _, name := range slices.Sorted(maps.Keys(s.at)) {
		a := s.at[name].DeepCopy()
		if a.DeletionTimestamp != nil {
			delete(s.at, name)
			continue
		}
		for other, b := range s.at {
			if other != name && b.Status.Attached {
				return fmt.Errorf("the volume is attached to %s and to %s", a.Spec.NodeName, b.Spec.NodeName)
			}
		}
		a.Status.Attached = true
		s.at[name] = a
	}
	return nil
}

// kubelet does one thing on a node: it reports that it uses the volumes of its pods,
// mounts a listed one that it has reported, or releases one that no pod wants.
func (s *small) kubelet(name string) {
	n := s.nodes[name].DeepCopy()
	wanted := slices.ContainsFunc(slices.Collect(maps.Values(s.pods)), func(p *corev1.Pod) bool { return p.Spec.NodeName == name })
	uses := len(n.Status.VolumesInUse) > 0
	switch {
	case wanted && !uses:
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{volume.Name()}
		s.put(n)
	case wanted:
		s.mounted[name] = s.mounted[name] || len(n.Status.VolumesAttached) > 0
	case s.mounted[name]:
		s.mounted[name] = false
	case uses:
		n.Status.VolumesInUse = nil
		s.put(n)
	}
}

func (s *small) create(name, node string) {
	p := s.pod.DeepCopy()
	p.Name, p.UID, p.Spec.NodeName = name, types.UID(name+"-"+fmt.Sprint(s.made)), node
	s.pods[name] = p
}

// Whatever pods, kubelets, the attacher and the API server do, and when, the volume is
// attached to one node at a time and never detached while a kubelet has mounted it. In
// the end it is where the last pod wants it.
func TestAnythingAtAnyTime(t *testing.T) {
	keys := []events.Key{keyOfVolume("pv-1"), keyOfNode("node-1"), keyOfNode("node-2")}
	nodes := []string{"node-1", "node-2"}
	step := func(s *small, what int) error {
		switch what {
		case 0, 1, 2:
			s.turn(keys[what])
		case 3, 4, 5:
			return s.carryOut(keys[what-3])
		case 6:
			return s.answer()
		case 7:
			s.kubelet("node-1")
		default:
			s.kubelet("node-2")
		}
		return nil
	}
	rapid.Check(t, func(r *rapid.T) {
		s := newSmall()
		for range rapid.IntRange(0, 120).Draw(r, "steps") {
			node := rapid.SampledFrom(nodes).Draw(r, "node")
			what := rapid.IntRange(0, 11).Draw(r, "what")
			switch name := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "pod"); {
			case what < 9:
				if err := step(s, what); err != nil {
					r.Fatal(err)
				}
			case what == 9 && s.pods[name] == nil:
				s.create(name, node)
			case what > 9:
				delete(s.pods, name)
			}
		}
		clear(s.pods)
		s.create("last", "node-2")
		for range 30 {
			for what := range 9 {
				if err := step(s, what); err != nil {
					r.Fatal(err)
				}
			}
		}
		if !s.mounted["node-2"] || s.mounted["node-1"] || len(s.at) != 1 {
			r.Fatalf("in the end it is mounted on %v, with %d attachments", s.mounted, len(s.at))
		}
	})
}
