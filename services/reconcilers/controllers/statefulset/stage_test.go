package statefulset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// lined returns a set without claims whose pods are available after 20 seconds, with an old
// and a new revision. Each text describes the pod of a number: its revision and, after dashes,
// what is odd about it: late (available in 15 seconds), unready, pending, failed, leaving,
// unnamed (without the label that has its name).
func lined(replicas int32, pods ...string) View {
	set := stateful("web", replicas)
	set.Spec.VolumeClaimTemplates, set.Spec.MinReadySeconds = nil, 20
	v := View{Set: set}
	byWord := map[string]string{}
	for i, word := range []string{"old", "new"} {
		set.Spec.Template.Spec.Containers[0].Image = "nginx:" + word
		r := v.revision(revision.Patch(&set.Spec.Template), int64(i+1))
		r.UID, r.ResourceVersion = types.UID(r.Name), "1"
		v.Revisions, byWord[word] = append(v.Revisions, r), r.Name
	}
	set.Status.CurrentRevision = v.Revisions[0].Name
	for i, text := range pods {
		if text != "" {
			words := strings.Split(text, "-")
			v.Pods = append(v.Pods, linedPod(set, fmt.Sprintf("web-%d", i), byWord[words[0]], words[1:]))
		}
	}
	return v
}

func linedPod(set *appsv1.StatefulSet, name, revision string, odd []string) *corev1.Pod {
	p := reconciletest.Pod(name, of(set), reconciletest.On("n1"))
	p.Labels = map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: name, appsv1.StatefulSetRevisionLabel: revision}
	since := time.Hour
	for _, word := range odd {
		switch word {
		case "late":
			since = 5 * time.Second
		case "unready":
			since = 0
		case "pending":
			p.Status.Phase = corev1.PodPending
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "leaving":
			reconciletest.Deleted[*corev1.Pod](now)(p)
		case "unnamed":
			delete(p.Labels, appsv1.StatefulSetPodNameLabel)
		}
	}
	if since > 0 {
		reconciletest.ReadySince(now.Add(-since))(p)
	}
	return p
}

// moves returns what a turn does, and why: "+" and "-" for creates and deletes, "=" for patches
// and updates with the reason of their Event, "!" for other Events, and when the next turn is.
// The status counts as written already, and notes are left out.
func moves(v View) string {
	d := decide(v, now)
	for _, c := range d.Commands {
		if c.Kind == kinds.StatefulSets.Name {
			v.Set.Status = parsed[appsv1.StatefulSet](c.Body).Status
			d = decide(v, now)
		}
	}
	because, _, _ := strings.Cut(d.Because, ";")
	all := []string{because + ":"}
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbRecord && c.OnApplied != nil:
			all = append(all, "!"+c.OnApplied.Reason)
		case c.Verb == events.VerbRecord:
		case c.Verb == events.VerbCreate:
			all = append(all, "+"+c.Name)
		case c.Verb == events.VerbDelete:
			all = append(all, "-"+c.Name)
		case c.OnApplied != nil:
			all = append(all, "="+c.Name+"("+c.OnApplied.Reason+")")
		default:
			all = append(all, "="+c.Name)
		}
	}
	if !d.WakeAt.IsZero() {
		all = append(all, "again in "+d.WakeAt.Sub(now).String())
	}
	return strings.Join(all, " ")
}

func parallel(v *View) { v.Set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

// claims gives the set a claim for each pod, and the claims of some numbers.
func claims(numbers ...int) func(*View) {
	return func(v *View) {
		v.Set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		for _, n := range numbers {
			v.Claims = append(v.Claims, claimed(fmt.Sprintf("data-web-%d", n)))
		}
	}
}

func leavingClaim(v *View) {
	claims(0, 1)(v)
	reconciletest.Deleted[*corev1.PersistentVolumeClaim](now)(v.Claims[0])
}

func policy(deleted, scaled bool) *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	of := map[bool]appsv1.PersistentVolumeClaimRetentionPolicyType{
		false: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, true: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	return &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: of[deleted], WhenScaled: of[scaled]}
}

// both combines several edits.
func both(edits ...func(*View)) func(*View) {
	return func(v *View) {
		for _, edit := range edits {
			edit(v)
		}
	}
}

// Upstream: updateStatefulSet.
func TestStepByStep(t *testing.T) {
	const wrong, many, rolls = "pods are not as they should be:", "there are too many pods:", "a pod has another revision:"
	onDelete := func(v *View) { v.Set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
	partition := func(v *View) { v.Set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](1) }
	squat := func(v *View) { v.Squatters = []string{"web-1"} }
	stale := both(claims(0), func(v *View) {
		v.Set.Spec.PersistentVolumeClaimRetentionPolicy = policy(false, true)
		v.Claims[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "before"}}
	})
	kept := both(stale, func(v *View) { v.Set.Spec.PersistentVolumeClaimRetentionPolicy = policy(true, false) })
	goes := both(claims(0), func(v *View) { v.Set.Spec.PersistentVolumeClaimRetentionPolicy = policy(true, false) })
	for what, c := range map[string]struct {
		view View
		edit func(*View)
		want string
	}{
		"the first comes first":                    {lined(2, "", ""), nil, wrong + " +web-0"},
		"then the next":                            {lined(2, "new", ""), nil, wrong + " +web-1"},
		"all come at once":                         {lined(2, "", ""), parallel, wrong + " +web-0 +web-1"},
		"one that is not ready is waited for":      {lined(2, "new-unready", ""), nil, "a pod is not ready:"},
		"so is one that does not run":              {lined(2, "new-pending", ""), nil, "a pod is not ready:"},
		"so is one that is late":                   {lined(2, "new-late", ""), nil, "a ready pod is not available yet: again in 15s"},
		"so is one that leaves":                    {lined(2, "new-leaving", ""), nil, "a pod is being deleted:"},
		"one that has ended goes":                  {lined(2, "new-failed", "new"), nil, wrong + " -web-0"},
		"one that has ended and leaves is awaited": {lined(2, "new-failed-leaving", ""), nil, "a pod has ended:"},
		"and gets no label any more":               {lined(1, "new-failed-leaving-unnamed"), parallel, "a pod is not available:"},
		"a label that is missing is set":           {lined(1, "new-unnamed"), nil, wrong + " =web-0(SuccessfulUpdate)"},
		"when the pod is well":                     {lined(1, "new-unnamed-unready"), nil, "a pod is not ready:"},
		"or at once":                               {lined(1, "new-unnamed-unready"), parallel, wrong + " =web-0(SuccessfulUpdate)"},
		"a name that another has":                  {lined(2, "new", ""), squat, "a pod that is not the set's has the name:"},
		"a name that another has does not stop it": {lined(3, "new", "", ""), both(parallel, squat), wrong + " +web-2"},
		"nor are others replaced meanwhile":        {lined(2, "old", ""), both(parallel, squat), "a pod is missing:"},

		"claims come first":                         {lined(1, ""), claims(), "claims do not match the set's policy: +data-web-0"},
		"then their pod":                            {lined(1, ""), claims(0), wrong + " +web-0"},
		"a pending pod gets its claims":             {lined(1, "new-pending"), claims(), "claims do not match the set's policy: +data-web-0"},
		"one that runs does not":                    {lined(1, "new"), claims(), "the pods are as desired:"},
		"one that leaves is told":                   {lined(1, ""), leavingClaim, "there are Events to record: !FailedCreate"},
		"and no more at the next turn":              {lined(1, ""), both(leavingClaim, func(v *View) { v.Told = []string{"blocked web-0 uid-data-web-0"} }), "a claim is being deleted:"},
		"nor of a set that goes":                    {lined(1, ""), both(leavingClaim, func(v *View) { reconciletest.Deleted[*appsv1.StatefulSet](now)(v.Set) }), "the set is being deleted:"},
		"under a pending pod that is no news":       {lined(1, "new-pending"), leavingClaim, "a claim is being deleted:"},
		"and those after it wait":                   {lined(2, "new-pending", ""), leavingClaim, "a claim is being deleted:"},
		"of two that are blocked the first is told": {lined(2, "", ""), both(leavingClaim, func(v *View) { reconciletest.Deleted[*corev1.PersistentVolumeClaim](now)(v.Claims[1]) }), "there are Events to record: !FailedCreate"},
		"but both where all are asked for":          {lined(2, "", ""), both(parallel, leavingClaim, func(v *View) { reconciletest.Deleted[*corev1.PersistentVolumeClaim](now)(v.Claims[1]) }), "there are Events to record: !FailedCreate !FailedCreate"},
		"a claim that goes with the pod before":     {lined(1, ""), stale, "a claim still goes with the pod before:"},
		"but not where the policy says otherwise":   {lined(1, ""), kept, wrong + " +web-0 !ConflictingController"},
		"a claim gets its owner with its pod":       {lined(1, ""), goes, wrong + " +web-0 =data-web-0"},
		"and is told of where the pod is there":     {lined(1, "new"), goes, wrong + " =data-web-0(SuccessfulUpdate)"},
		"but not while it is waited for":            {lined(1, "new-unready"), goes, wrong + " =data-web-0"},
		"a conflict is told of as such, and once":   {lined(1, "new-pending"), both(goes, func(v *View) { controlledByOther(v); v.Told = []string{"conflict uid-data-web-0"} }), "a pod is not ready:"},
		"a conflict of a pending pod is told of":    {lined(1, "new-pending"), both(goes, controlledByOther), "there are Events to record: !ConflictingController"},
		"one of a pod that runs has been told of":   {lined(1, "new"), both(goes, controlledByOther), "the pods are as desired:"},

		"the highest goes first":                {lined(1, "new", "new", "new"), nil, many + " -web-2"},
		"one at a time":                         {lined(1, "new", "new", "new-leaving"), nil, "a pod is being deleted:"},
		"or all at once":                        {lined(1, "new", "new", "new"), parallel, many + " -web-2 -web-1"},
		"but for those that go":                 {lined(1, "new", "new", "new-leaving"), parallel, many + " -web-1"},
		"when all go the rest follows":          {lined(1, "old", "new-leaving"), parallel, rolls + " -web-0"},
		"one that is not well may go":           {lined(1, "new", "new-unready"), nil, many + " -web-1"},
		"also when others are well":             {lined(1, "new", "new", "new-unready"), nil, many + " -web-2"},
		"but not before the lowest that is not": {lined(1, "new", "new-unready", "new-unready"), nil, "a pod is not healthy, and others are replaced when all are:"},
		"one that is late is not well":          {lined(1, "new", "new-unready", "new-late"), nil, "a ready pod is not available yet: again in 15s"},
		"one that does not run is not well":     {lined(1, "new", "new-unready", "new-pending"), nil, "a pod is not healthy, and others are replaced when all are:"},
		"one that is well goes before":          {lined(1, "new", "new-unready", "new"), nil, many + " -web-2"},
		"those that there should be come first": {lined(1, "new-unready", "new"), nil, "a pod is not ready:"},

		"the highest is replaced first":     {lined(3, "old", "old", "old"), nil, rolls + " -web-2"},
		"then the next of them":             {lined(3, "old", "old", "new"), nil, rolls + " -web-1"},
		"when it is available":              {lined(3, "old", "old", "new-late"), parallel, "a ready pod is not available yet: again in 15s"},
		"or has gone":                       {lined(2, "old", "old-leaving"), parallel, "a pod is not available:"},
		"down to the partition":             {lined(2, "old", "new"), partition, "the pods are as desired:"},
		"and no further":                    {lined(2, "old", "old"), partition, rolls + " -web-1"},
		"none, where users delete them":     {lined(2, "old", "old"), onDelete, "pods are replaced when a user deletes them:"},
		"a partition that is not said is 0": {lined(1, "old"), func(v *View) { v.Set.Spec.UpdateStrategy.RollingUpdate.Partition = nil }, rolls + " -web-0"},
		"a number that is not said is 1":    {lined(2), func(v *View) { v.Set.Spec.Replicas = nil; parallel(v) }, wrong + " +web-0"},
		"a set that goes gets no revision":  {lined(1), func(v *View) { v.Revisions = nil; reconciletest.Deleted[*appsv1.StatefulSet](now)(v.Set) }, "the set is being deleted:"},
		"a set without a selector has none": {lined(1), func(v *View) { v.Set.Spec.Selector = nil }, "the selector is invalid or empty:"},
	} {
		if c.edit != nil {
			c.edit(&c.view)
		}
		if got := moves(c.view); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func controlledByOther(v *View) {
	v.Claims[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "db.example.com/v1", Kind: "Cluster", Name: "main", UID: "m1", Controller: ptr.To(true)}}
}

// Upstream: updateClaimOwnerRefForSetAndPod.
func TestWhoOwnsAClaimThen(t *testing.T) {
	set := stateful("web", 1)
	ours := owner.Reference(kinds.StatefulSets.Kind, set)
	ref := func(version, kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid}
	}
	loose, other := ours, ref("v1", "ConfigMap", "web", "a")
	loose.Controller = nil
	cluster := ref("example.com/v1", "Cluster", "main", "z")
	cluster.Controller = ptr.To(true)
	for what, c := range map[string]struct {
		deleted, scaled bool
		had             []metav1.OwnerReference
		want            string // the names and uids of owners; "-" where nothing is done
		conflict        bool
	}{
		"none":                              {true, false, nil, "web/uid-web", false},
		"none, and none is wanted":          {false, false, nil, "-", false},
		"the set":                           {true, false, []metav1.OwnerReference{ours}, "-", false},
		"the set, in another order":         {true, false, []metav1.OwnerReference{ours, other}, "-", false},
		"the set, not as a controller":      {true, false, []metav1.OwnerReference{loose}, "web/uid-web", false},
		"the set, which is not to":          {false, false, []metav1.OwnerReference{ours}, "", false},
		"the set, scaled pods are to":       {false, true, []metav1.OwnerReference{ours}, "", false},
		"a set of before":                   {true, false, []metav1.OwnerReference{ref("apps/v1", "StatefulSet", "web", "before")}, "-", true},
		"a set of before, no policy":        {false, false, []metav1.OwnerReference{ref("apps/v1", "StatefulSet", "web", "before")}, "-", false},
		"a pod of before, scaled":           {false, true, []metav1.OwnerReference{ref("v1", "Pod", "web-0", "before")}, "-", true},
		"another set":                       {true, false, []metav1.OwnerReference{ref("apps/v1", "StatefulSet", "db", "a")}, "db/a web/uid-web", false},
		"another kind of the name":          {true, false, []metav1.OwnerReference{other}, "web/a web/uid-web", false},
		"another version of the kind":       {true, false, []metav1.OwnerReference{ref("apps/v0", "StatefulSet", "web", "a")}, "web/a web/uid-web", false},
		"another kind of the version":       {true, false, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web", "a")}, "web/a web/uid-web", false},
		"another controller":                {true, false, []metav1.OwnerReference{cluster}, "-", true},
		"another controller, scaled":        {false, true, []metav1.OwnerReference{cluster}, "-", true},
		"another controller, no policy":     {false, false, []metav1.OwnerReference{cluster}, "-", false},
		"another controller beside the set": {true, false, []metav1.OwnerReference{cluster, ours}, "main/z", true},
	} {
		v := lined(1, "new")
		claims(0)(&v)
		v.Set.Spec.PersistentVolumeClaimRetentionPolicy = policy(c.deleted, c.scaled)
		v.Claims[0].OwnerReferences = c.had
		s := v.stage(v.Pods, history{}, now)
		got, conflict := "-", false
		for _, command := range s.owned(0, v.Pods[0]) {
			got = ""
			for _, r := range parsed[corev1.PersistentVolumeClaim](command.Body).OwnerReferences {
				got += " " + r.Name + "/" + string(r.UID)
			}
			conflict = command.OnApplied != nil && command.OnApplied.Reason == "ConflictingController"
		}
		if conflict = conflict || len(s.conflicts(0, v.Pods[0])) > 0; strings.TrimSpace(got) != c.want || conflict != c.conflict {
			t.Errorf("%s: the owners become %q, a conflict: %v; want %q, %v", what, got, conflict, c.want, c.conflict)
		}
	}
}

func TestNumbersOfPods(t *testing.T) {
	v := View{Set: stateful("web", 1)}
	for name, want := range map[string]int{
		"web-0": 0, "web-10": 10, "web-01": -1, "web--1": -1, "web-": -1, "web-x": -1, "web-0x1": -1, "db-1": -1, "web": -1,
		"web-2147483647": 2147483647, "web-2147483648": -1,
	} {
		if got := v.ordinal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != want {
			t.Errorf("pod %s has the number %d, want %d", name, got, want)
		}
	}
}

// A volume of the template gives way to a claim of the same name.
func TestVolumes(t *testing.T) {
	v := View{Set: stateful("web", 1)}
	var got []string
	for _, volume := range v.volumes(3, []corev1.Volume{{Name: "config"}, {Name: "data"}}) {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			volume.Name += " of " + claim.ClaimName
		}
		got = append(got, volume.Name)
	}
	if want := []string{"data of data-web-3", "config"}; !slices.Equal(got, want) {
		t.Errorf("the volumes are %q, want %q", got, want)
	}
}

// Several claims that block the create of a pod are reported together.
func TestSeveralClaimsBlockAPod(t *testing.T) {
	for n, want := range []string{1: "failed error: pvc c0 is being deleted", 2: "failed error: [pvc c0 is being deleted, pvc c1 is being deleted]"} {
		var leaving []*corev1.PersistentVolumeClaim
		for i := range n {
			leaving = append(leaving, claimed(fmt.Sprintf("c%d", i)))
		}
		if n == 0 {
			continue
		}
		s := lined(1).stage(nil, history{}, now)
		if got := s.blocked(0, leaving).notice.Message; !strings.HasSuffix(got, want) {
			t.Errorf("%d claims: %q is told, want %q", n, got, want)
		}
	}
}

// The view has the note of the last report, unless that was about an earlier set of the same name.
func TestWhatWasToldIsSeen(t *testing.T) {
	set := stateful("web", 1)
	note := func(text string) events.Result {
		return events.Result{Answer: &events.Answer{Note: json.RawMessage(text)}}
	}
	for what, c := range map[string]struct {
		uid     types.UID
		results []events.Result
		want    []string
	}{
		"a note":            {set.UID, []events.Result{{}, note(`{"told":["a","b"]}`)}, []string{"a", "b"}},
		"no note":           {set.UID, []events.Result{{}}, nil},
		"an unreadable one": {set.UID, []events.Result{note(`{"told":["a",7]}`)}, nil},
		"another set's":     {"before", []events.Result{note(`{"told":["a"]}`)}, nil},
	} {
		world := reconciletest.NewWorld(kinds.Pods.Kind, kinds.PersistentVolumeClaims.Kind, kinds.ControllerRevisions.Kind).Put(kinds.StatefulSets.Kind, set).
			Remember(events.Outcome{Key: web, Lane: events.LaneStatus, UID: c.uid, Results: c.results})
		if v, _ := observe(world, web); !slices.Equal(v.Told, c.want) {
			t.Errorf("%s: %q have been told, want %q", what, v.Told, c.want)
		}
	}
}

// A set without a selector is seen without its pods. The view has the gates.
func TestWhatIsSeenOfOddSets(t *testing.T) {
	set := stateful("web", 1)
	set.Spec.Selector = nil
	world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind, kinds.ControllerRevisions.Kind).
		Put(kinds.StatefulSets.Kind, set).Put(kinds.Pods.Kind, reconciletest.Pod("web-0", of(set)))
	c := New(gate.Set{gate.MaxUnavailableStatefulSet: true})
	v, ok := c.Observe(world, web)
	if !ok || v.Set == nil || len(v.Pods) > 0 || !v.Gates.On(gate.MaxUnavailableStatefulSet) {
		t.Errorf("the view has %d pods and the gates %v of a set that is there: %v", len(v.Pods), v.Gates, ok)
	}
	if _, ok := c.Observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "other"}); ok {
		t.Error("observe finds a set that is not there")
	}
}

// At most 500 pods are created in a turn, as many as upstream does in a batch.
func TestAVeryLargeSet(t *testing.T) {
	v := lined(1200)
	if parallel(&v); len(decide(v, now).In(events.LaneWrite).Commands) != 500 {
		t.Errorf("the decision has %d commands", len(decide(v, now).In(events.LaneWrite).Commands))
	}
}

// Old revisions beyond the limit are deleted, the oldest first, except for those that existing
// pods have.
//
// Upstream: truncateHistory.
func TestRevisionsThatAreForgotten(t *testing.T) {
	for what, c := range map[string]struct {
		limit *int32
		old   int
		of    int // the old revision of a pod; 0: no such pod
		want  []string
	}{
		"as many as may be":       {ptr.To[int32](2), 2, 0, nil},
		"one more":                {ptr.To[int32](2), 3, 0, []string{"web-1"}},
		"a pod is of the oldest":  {ptr.To[int32](1), 3, 1, []string{"web-2"}},
		"none may be":             {new(int32), 2, 0, []string{"web-1", "web-2"}},
		"all may be":              {ptr.To[int32](-1), 2, 0, nil},
		"ten, where none is said": {nil, 10, 0, nil},
		"the eleventh of those":   {nil, 11, 0, []string{"web-1"}},
	} {
		v := lined(1, "new")
		v.Set.Spec.RevisionHistoryLimit, v.Set.Status.CurrentRevision = c.limit, ""
		newest := v.Revisions[1]
		newest.Revision, v.Revisions = 99, []*appsv1.ControllerRevision{newest}
		for i := range c.old {
			r := revised(fmt.Sprintf("web-%d", i+1), v.Set)
			r.Revision, r.ResourceVersion = int64(i+1), "1"
			v.Revisions = append(v.Revisions, r)
		}
		if c.of > 0 {
			v.Pods = append(v.Pods, linedPod(v.Set, "web-7", fmt.Sprintf("web-%d", c.of), []string{"leaving"}))
		}
		var got []string
		for _, command := range decide(v, now).Commands {
			if command.Verb == events.VerbDelete && command.Kind == kinds.ControllerRevisions.Name {
				got = append(got, command.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q are forgotten, want %q", what, got, c.want)
		}
	}
}

// A status keeps the conditions of other programs, and does not count a pod without a phase.
func TestWhatAStatusKeeps(t *testing.T) {
	v := lined(2, "new", "new")
	v.Pods[1].Status = corev1.PodStatus{}
	v.Set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: "Theirs", Status: "True"}}
	for _, c := range decide(v, now).Commands {
		if c.Kind != kinds.StatefulSets.Name {
			continue
		}
		next := parsed[appsv1.StatefulSet](c.Body)
		if next.Kind != "StatefulSet" || len(next.Status.Conditions) != 1 || next.Status.Replicas != 1 || next.Status.UpdatedReplicas != 1 {
			t.Errorf("of %q it says %+v", next.Kind, next.Status)
		}
		return
	}
	t.Error("nothing is said")
}
