package persistentvolumebinder

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// A binding is several writes to two objects, and these tests try every order of them. A turn sees
// claims of any earlier moment, and volumes of any other one, but no older ones than the key's last
// turn saw. Any one of its commands is carried out, on the present objects. Users, the scheduler and
// provisioners act in between.
//
// In no order are two claims bound to one volume, is a volume taken from a claim that has no other,
// is a claim called lost whose volume exists, or a volume released whose claim exists. From every
// state the controller comes to an end in which all claims are bound that can be.

// place is a situation to explore: objects, and what others may do once each.
type place struct {
	claims  []*corev1.PersistentVolumeClaim
	volumes []*corev1.PersistentVolume
	class   *storagev1.StorageClass
	others  []other
	// bound is how many claims are bound in the end, if the others have done everything; 0: it
	// depends on the order.
	bound int
}

// other changes the present state; false: it cannot do so now.
type other struct {
	name string
	does func(*truth) bool
}

// truth is the present state: each object as JSON, by name.
type truth struct {
	claims, volumes map[string]string
	version         int
}

func (w truth) clone() truth {
	return truth{maps.Clone(w.claims), maps.Clone(w.volumes), w.version}
}

func (w *truth) claim(name string) *corev1.PersistentVolumeClaim {
	return read[corev1.PersistentVolumeClaim](w.claims[name])
}

func (w *truth) volume(name string) *corev1.PersistentVolume {
	return read[corev1.PersistentVolume](w.volumes[name])
}

func read[T any](text string) *T {
	if text == "" {
		return nil
	}
	obj := new(T)
	if err := json.Unmarshal([]byte(text), obj); err != nil {
		panic(err)
	}
	return obj
}

func (w *truth) put(obj metav1.Object) {
	w.version++
	obj.SetResourceVersion(strconv.Itoa(w.version))
	if _, ok := obj.(*corev1.PersistentVolume); ok {
		w.volumes[obj.GetName()] = string(reconcile.Body(obj))
	} else {
		w.claims[obj.GetName()] = string(reconcile.Body(obj))
	}
}

// state is the state after a sequence of steps.
type state struct {
	truth
	pastClaims, pastVolumes []map[string]string
	done                    string // what the others have done, as letters
	answers                 map[events.Key]string
	since                   map[events.Key][2]int // by key, the oldest claims and volumes that a turn may see: indexes of the past
}

func (s state) digest() string {
	var keys []string
	for key, answer := range s.answers {
		keys = append(keys, fmt.Sprint(key, answer))
	}
	for key, since := range s.since {
		keys = append(keys, fmt.Sprint(key, since))
	}
	slices.Sort(keys)
	return string(reconcile.Body([]any{s.pastClaims, s.pastVolumes, s.done, keys}))
}

// explorer tries all orders.
type explorer struct {
	t     *testing.T
	place place
	seen  map[string]bool
	asked map[string][]events.Command
	ends  map[string]bool
	steps int
}

func explore(t *testing.T, p place) *explorer {
	e := &explorer{t: t, place: p, seen: map[string]bool{}, asked: map[string][]events.Command{}, ends: map[string]bool{}}
	start := state{truth: truth{claims: map[string]string{}, volumes: map[string]string{}}, answers: map[events.Key]string{}, since: map[events.Key][2]int{}}
	for _, c := range p.claims {
		start.put(c)
	}
	for _, v := range p.volumes {
		start.put(v)
	}
	start.pastClaims, start.pastVolumes = []map[string]string{start.claims}, []map[string]string{start.volumes}
	todo := []state{start}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if d := s.digest(); e.seen[d] {
			continue
		} else {
			e.seen[d] = true
		}
		e.settles(s)
		todo = append(todo, e.next(s)...)
	}
	return e
}

// keys returns the keys of all objects, of the start and of the present.
func (e *explorer) keys(s state) (keys []events.Key) {
	for _, name := range slices.Sorted(maps.Keys(union(s.pastClaims[0], s.claims))) {
		keys = append(keys, keyOfClaim(reconciletest.Namespace, name))
	}
	for _, name := range slices.Sorted(maps.Keys(union(s.pastVolumes[0], s.volumes))) {
		keys = append(keys, keyOfVolume(name))
	}
	return keys
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// next returns the states after one more step.
func (e *explorer) next(s state) (all []state) {
	for i, o := range e.place.others {
		letter := string(rune('a' + i))
		if strings.Contains(s.done, letter) {
			continue
		}
		if after := s.truth.clone(); o.does(&after) {
			to := s.to(after)
			done := strings.Split(s.done+letter, "")
			slices.Sort(done)
			to.done = strings.Join(done, "")
			all = append(all, to)
		}
	}
	for _, key := range e.keys(s) {
		since := s.since[key]
		for i := since[0]; i < len(s.pastClaims); i++ {
			for j := since[1]; j < len(s.pastVolumes); j++ {
				for _, c := range e.ask(key, s.pastClaims[i], s.pastVolumes[j], s.answers[key]) {
					if to, ok := e.carry(s, key, c); ok {
						to.since = maps.Clone(s.since)
						to.since[key] = [2]int{i, j}
						all = append(all, to)
					}
				}
			}
		}
	}
	return all
}

// to returns the state after a change.
func (s state) to(after truth) state {
	next := state{truth: after, pastClaims: s.pastClaims, pastVolumes: s.pastVolumes, done: s.done, answers: s.answers, since: s.since}
	if !maps.Equal(after.claims, s.claims) {
		next.pastClaims = append(slices.Clone(s.pastClaims), after.claims)
	}
	if !maps.Equal(after.volumes, s.volumes) {
		next.pastVolumes = append(slices.Clone(s.pastVolumes), after.volumes)
	}
	return next
}

// ask returns the commands of a key's turn on a view, without Events.
func (e *explorer) ask(key events.Key, claims, volumes map[string]string, answer string) []events.Command {
	id := string(reconcile.Body([]any{key, claims, volumes, answer}))
	if commands, known := e.asked[id]; known {
		return commands
	}
	world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind, kinds.PersistentVolumes.Kind, kinds.StorageClasses.Kind, kinds.Pods.Kind)
	for _, text := range claims {
		world.Put(kinds.PersistentVolumeClaims.Kind, read[corev1.PersistentVolumeClaim](text))
	}
	for _, text := range volumes {
		world.Put(kinds.PersistentVolumes.Kind, read[corev1.PersistentVolume](text))
	}
	if e.place.class != nil {
		world.Put(kinds.StorageClasses.Kind, e.place.class)
	}
	if answer != "" {
		world.Remember(*read[events.Outcome](answer))
	}
	d, _ := Controller.Ask(world, key, now)
	e.steps++
	var acts []events.Command
	for _, c := range d.Commands {
		if c.Verb != events.VerbRecord {
			acts = append(acts, c)
		}
	}
	e.asked[id] = acts
	return acts
}

// carry carries out a command on the state; false if it changes nothing.
func (e *explorer) carry(s state, key events.Key, c events.Command) (state, bool) {
	if c.Verb == events.VerbAsk {
		return s.answered(key, c)
	}
	before := s.claims[c.Name]
	if c.Kind == kinds.PersistentVolumes.Name {
		before = s.volumes[c.Name]
	}
	var was metav1.PartialObjectMetadata
	if before == "" || json.Unmarshal([]byte(before), &was) != nil || was.UID != c.If.UID || was.ResourceVersion != c.If.ResourceVersion {
		return s, false // a conflict
	}
	after := s.truth.clone()
	if c.Kind == kinds.PersistentVolumes.Name {
		now, next := s.volume(c.Name), read[corev1.PersistentVolume](string(c.Body))
		if c.Subresource == "status" {
			now.Status = next.Status
		} else {
			next.Status = now.Status
			now = next
		}
		after.put(now)
	} else {
		now, next := s.claim(c.Name), read[corev1.PersistentVolumeClaim](string(c.Body))
		if c.Subresource == "status" {
			now.Status = next.Status
		} else {
			next.Status = now.Status
			now = next
		}
		after.put(now)
	}
	e.lawful(s, after)
	return s.to(after), true
}

// answered makes the API server answer a question; false if the answer is known.
func (s state) answered(key events.Key, c events.Command) (state, bool) {
	o := events.Outcome{Key: key, Lane: events.LaneWrite, At: now}
	about, text := s.volumes[key.Name], s.claims[c.Name]
	if key.Kind == "" {
		about, text = s.claims[key.Name], s.volumes[c.Name]
	}
	var own metav1.PartialObjectMetadata
	if about == "" || json.Unmarshal([]byte(about), &own) != nil {
		return s, false
	}
	o.UID, o.ResourceVersion = own.UID, own.ResourceVersion
	r := events.Result{Ref: c.Ref(), Status: events.Absent}
	if text != "" {
		r.Status, r.Answer = events.Answered, &events.Answer{Body: json.RawMessage(text)}
	}
	o.Results = []events.Result{r}
	to := s
	to.answers = maps.Clone(s.answers)
	to.answers[key] = string(reconcile.Body(o))
	return to, to.answers[key] != s.answers[key]
}

// lawful checks a write of the controller against the law.
func (e *explorer) lawful(s state, after truth) {
	live := map[types.UID]*corev1.PersistentVolumeClaim{}
	for name := range after.claims {
		c := after.claim(name)
		live[c.UID] = c
	}
	has2 := map[string]string{}
	for name := range after.claims {
		c := after.claim(name)
		if !has(c, completed) {
			continue
		}
		if first := has2[c.Spec.VolumeName]; first != "" {
			e.t.Fatalf("%s and %s are bound to %s", first, name, c.Spec.VolumeName)
		}
		has2[c.Spec.VolumeName] = name
		was := s.claim(name)
		if was.Spec.VolumeName != "" && was.Spec.VolumeName != c.Spec.VolumeName {
			e.t.Fatalf("%s named %s, and names %s", name, was.Spec.VolumeName, c.Spec.VolumeName)
		}
		if c.Status.Phase == corev1.ClaimLost && was.Status.Phase != corev1.ClaimLost && after.volumes[c.Spec.VolumeName] != "" {
			e.t.Fatalf("%s is called lost, and its volume is there", name)
		}
		if c.Status.Phase == corev1.ClaimBound && was.Status.Phase != corev1.ClaimBound {
			if v := after.volume(c.Spec.VolumeName); v != nil && (v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID) {
				e.t.Fatalf("%s is called bound, and its volume does not have it", name)
			}
		}
	}
	for name := range after.volumes {
		e.keeps(name, s.volume(name), after.volume(name), live)
	}
}

// keeps: a volume stays with its claim, unless the claim has another volume or was deleted.
func (e *explorer) keeps(name string, was, is *corev1.PersistentVolume, live map[types.UID]*corev1.PersistentVolumeClaim) {
	if was.Spec.ClaimRef == nil || live[was.Spec.ClaimRef.UID] == nil {
		return
	}
	claim := live[was.Spec.ClaimRef.UID]
	spare := claim.Spec.VolumeName != "" && claim.Spec.VolumeName != name
	taken := is.Spec.ClaimRef == nil || is.Spec.ClaimRef.UID != was.Spec.ClaimRef.UID
	released := is.Status.Phase == corev1.VolumeReleased && was.Status.Phase != corev1.VolumeReleased
	if (taken || released) && !spare {
		e.t.Fatalf("%s is taken from %s (taken: %v, released: %v)", name, claim.Name, taken, released)
	}
}

// settles checks that the controller comes to an end from here, with nothing left over, if it sees
// everything and nothing else happens.
func (e *explorer) settles(s state) {
	id := string(reconcile.Body([]any{s.claims, s.volumes}))
	if e.ends[id] {
		return
	}
	e.ends[id] = true
	all := len(s.done) == len(e.place.others)
	s.answers = map[events.Key]string{}
	const most = 20
	for range most {
		still := true
		for _, key := range e.keys(s) {
			for _, c := range e.ask(key, s.claims, s.volumes, s.answers[key]) {
				if to, ok := e.carry(s, key, c); ok {
					s, still = to, false
				}
			}
		}
		if still {
			e.ended(s, all)
			return
		}
	}
	e.t.Fatalf("after %d rounds there is still something to do: %v %v", most, s.claims, s.volumes)
}

func (e *explorer) ended(s state, all bool) {
	bound := 0
	for name := range s.claims {
		c := s.claim(name)
		if lost := has(c, completed) && s.volumes[c.Spec.VolumeName] == ""; lost != (c.Status.Phase == corev1.ClaimLost) {
			e.t.Fatalf("in the end %s is %s, and its volume is gone: %v", name, c.Status.Phase, lost)
		}
		if c.Status.Phase != corev1.ClaimBound {
			continue
		}
		bound++
		if v := s.volume(c.Spec.VolumeName); v == nil || v.Spec.ClaimRef.UID != c.UID || v.Status.Phase != corev1.VolumeBound {
			e.t.Fatalf("in the end %s is bound, and its volume is not: %v", name, v)
		}
	}
	for name := range s.volumes {
		v := s.volume(name)
		switch v.Status.Phase {
		case corev1.VolumeBound:
			if c := s.claim(v.Spec.ClaimRef.Name); c == nil || c.UID != v.Spec.ClaimRef.UID || c.Spec.VolumeName != name {
				e.t.Fatalf("in the end %s is bound, and its claim is not: %v", name, c)
			}
		case corev1.VolumeAvailable:
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != "" {
				e.t.Fatalf("in the end %s is kept for a claim that does not come: %v", name, v.Spec.ClaimRef)
			}
		case corev1.VolumeReleased, corev1.VolumeFailed:
			if c := s.claim(v.Spec.ClaimRef.Name); c != nil && c.UID == v.Spec.ClaimRef.UID && c.Spec.VolumeName == name {
				e.t.Fatalf("in the end %s is %s, and its claim is there", name, v.Status.Phase)
			}
		default:
			e.t.Fatalf("in the end %s is in the phase %q", name, v.Status.Phase)
		}
	}
	if want := e.place.bound; all && want > 0 && bound != want {
		e.t.Fatalf("in the end %d claims are bound and not %d: %v %v", bound, want, s.claims, s.volumes)
	}
}

// deletes lets a user delete a claim.
func deletes(name string) other {
	return other{"delete " + name, func(w *truth) bool {
		_, there := w.claims[name]
		delete(w.claims, name)
		return there
	}}
}

// loses lets a user delete a volume by force.
func loses(name string) other {
	return other{"lose " + name, func(w *truth) bool {
		_, there := w.volumes[name]
		delete(w.volumes, name)
		return there
	}}
}

// creates lets a user create a claim with the name of a deleted one.
func creates(name, uid string) other {
	return other{"create " + uid, func(w *truth) bool {
		if w.claims[name] != "" {
			return false
		}
		c := pvc(name, "1Gi")
		c.UID = types.UID(uid)
		w.put(c)
		return true
	}}
}

// reserves lets the scheduler, or a user, write a claim into a free volume.
func reserves(volume, claim string, byUser bool) other {
	return other{"reserve " + volume, func(w *truth) bool {
		v, c := w.volume(volume), w.claim(claim)
		if v == nil || c == nil || v.Spec.ClaimRef != nil || c.Spec.VolumeName != "" {
			return false
		}
		v.Spec.ClaimRef = refTo(c)
		if byUser {
			v.Spec.ClaimRef.UID, v.Spec.ClaimRef.ResourceVersion = "", ""
		} else {
			v.Annotations = map[string]string{byController: "yes"}
		}
		w.put(v)
		return true
	}}
}

// provisions lets a provisioner create a volume.
func provisions(v *corev1.PersistentVolume) other {
	return other{"provision " + v.Name, func(w *truth) bool {
		w.put(v.DeepCopy())
		return true
	}}
}

func TestNothingIsLostOrSharedInAnyOrder(t *testing.T) {
	named := pvc("b", "1Gi")
	named.Spec.VolumeName = "v"
	fresh := pv("v", "1Gi")
	fresh.Status.Phase = ""
	lateClass := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: fast}, Provisioner: "csi.example.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	lateClaim, lateVolume := pvc("a", "1Gi"), pv("v", "1Gi")
	lateClaim.Spec.StorageClassName, lateVolume.Spec.StorageClassName = &fast, fast
	made := pv("w", "1Gi")
	made.Annotations = map[string]string{provisionedBy: "csi.example.com"}
	made.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	made.Spec.ClaimRef = refTo(pvc("a", "1Gi"))
	same := sameChoice(t)
	for name, p := range map[string]place{
		"two claims, one volume":              {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi"), pvc("b", "1Gi")}, volumes: []*corev1.PersistentVolume{fresh.DeepCopy()}, bound: 1},
		"one claim, two volumes":              {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi")}, volumes: []*corev1.PersistentVolume{pv("v", "2Gi"), fresh.DeepCopy()}, bound: 1},
		"two claims, one of which names":      {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi"), named.DeepCopy()}, volumes: []*corev1.PersistentVolume{pv("v", "1Gi")}, bound: 1},
		"a claim that is deleted and comes":   {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi")}, volumes: []*corev1.PersistentVolume{pv("v", "1Gi")}, others: []other{deletes("a"), creates("a", "again")}},
		"a volume that is reserved meanwhile": {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi")}, volumes: []*corev1.PersistentVolume{pv("v", "1Gi"), pv("w", "2Gi")}, others: []other{reserves("w", "a", true)}, bound: 1},
		"two claims, two volumes":             {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi"), pvc("b", "1Gi")}, volumes: same, bound: 2},
		"a volume that is lost":               {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi")}, volumes: []*corev1.PersistentVolume{pv("v", "1Gi")}, others: []other{loses("v")}},
		"the scheduler chooses":               {claims: []*corev1.PersistentVolumeClaim{lateClaim}, volumes: []*corev1.PersistentVolume{lateVolume}, class: lateClass, others: []other{reserves("v", "a", false)}, bound: 1},
		"a volume is made for it, too":        {claims: []*corev1.PersistentVolumeClaim{pvc("a", "1Gi")}, volumes: []*corev1.PersistentVolume{pv("v", "1Gi")}, others: []other{provisions(made)}, bound: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := explore(t, p)
			t.Logf("%d states, %d ends, %d views", len(e.seen), len(e.ends), e.steps)
			if len(e.seen) < 5 {
				t.Error("hardly anything happens: the test has lost its point")
			}
		})
	}
}

// sameChoice returns two volumes of which the claims a and b want the same one. Other claims would
// never compete.
func sameChoice(t *testing.T) []*corev1.PersistentVolume {
	for i := range 100 {
		x, y := pv("x", "1Gi"), pv(fmt.Sprint("y", i), "1Gi")
		if better(x, y, pvc("a", "1Gi")) && better(x, y, pvc("b", "1Gi")) {
			return []*corev1.PersistentVolume{x, y}
		}
	}
	t.Fatal("the claims never want the same")
	return nil
}
