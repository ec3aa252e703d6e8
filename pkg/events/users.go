package events

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubUsers is the subresource of an ask for what may need an object of a kind in [UserKinds]:
// the pods that may need a PersistentVolumeClaim, or are in a PodGroup and have not ended; the
// IPAddresses that would be in no ServiceCIDR without one. The API server has none of that name: the writer lists them,
// live. The answer is [Users]. The same is a condition of a command ([If].Unused).
const SubUsers = "users"

// UserKinds are the kinds of which something may need an object of a kind; nil for a kind
// whose users cannot be asked for.
func UserKinds(kind kinds.Name) []kinds.Name {
	switch kind {
	case kinds.PersistentVolumeClaims.Name, kinds.PodGroups.Name:
		return []kinds.Name{kinds.Pods.Name}
	case kinds.ServiceCIDRs.Name:
		return []kinds.Name{kinds.IPAddresses.Name, kinds.ServiceCIDRs.Name}
	default:
		return nil
	}
}

// Users are what may need an object. That was looked at after they were listed, and had
// the uid that the ask insists on.
type Users struct {
	// Pods are those of a claim that [UserOf] knows, at most [MaxUsers]; Names are those of
	// what needs any other object, no more either. Count is how many there are.
	Pods  []User   `json:"pods,omitempty"`
	Names []string `json:"names,omitempty"`
	Count int      `json:"count,omitempty"`
}

// Name adds what needs the object, by its name alone.
func (u *Users) Name(name string) {
	if u.Count++; len(u.Names) < MaxUsers {
		u.Names = append(u.Names, name)
	}
}

// Take adds a pod, if it may need the claim.
func (u *Users) Take(p *corev1.Pod, claim string) {
	user, ok := UserOf(p, claim)
	if !ok {
		return
	}
	if u.Count++; len(u.Pods) < MaxUsers {
		u.Pods = append(u.Pods, user)
	}
}

// String says what there is.
func (u Users) String() string {
	switch {
	case u.Count == 0:
		return "nothing needs it"
	case len(u.Pods)+len(u.Names) == 0:
		return fmt.Sprintf("%d need it", u.Count)
	}
	text := "needed by "
	if len(u.Names) > 0 {
		text += u.Names[0]
	} else {
		text += "the pod " + u.Pods[0].Name
	}
	if u.Count > 1 {
		text += fmt.Sprintf(" and %d more", u.Count-1)
	}
	return text
}

// Need tells whether one of the pods may need the claim. Of those that are not named
// it is unknown.
func (u Users) Need(claim metav1.Object) bool {
	return u.Count > len(u.Pods) || slices.ContainsFunc(u.Pods, func(user User) bool { return user.Needs(claim) })
}

// MaxUsers bounds what of an answer is named.
const MaxUsers = 100

// User is a pod with a node that names a claim.
type User struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Own is true where the claim has the name of one that is made for this pod and
	// goes with it. It is the pod's only if the pod owns it.
	Own bool `json:"own,omitempty"`
	// Down is true for a pod that is known to be shut down: it was deleted, and has no
	// time left.
	Down bool `json:"down,omitempty"`
}

// UserOf is a pod as the user of a claim of its namespace; ok is false for one that
// does not name the claim, and for one without a node: it needs no claim yet, and is
// given no node once the claim is deleted.
func UserOf(p *corev1.Pod, claim string) (u User, ok bool) {
	if p.Spec.NodeName == "" {
		return User{}, false
	}
	u = User{Name: p.Name, UID: p.UID, Own: true}
	u.Down = p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	for i := range p.Spec.Volumes {
		if name, own := ClaimOf(p, &p.Spec.Volumes[i]); name == claim {
			ok, u.Own = true, u.Own && own
		}
	}
	if !ok {
		return User{}, false
	}
	return u, true
}

// ClaimOf is the name of the claim behind a volume of a pod, "" where there is none;
// own is true for one that is made for this pod and goes with it.
func ClaimOf(p *corev1.Pod, v *corev1.Volume) (name string, own bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name, true
	default:
		return "", false
	}
}

// Needs tells whether the pod may need the claim. One that has ended may, since its
// node may not have let go of the volume; one that is shut down needs nothing that is
// its own.
//
// Upstream: pkg/controller/volume/pvcprotection, podUsesPVCForDeletion.
func (u User) Needs(claim metav1.Object) bool {
	if !u.Own {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(claim)
	return !u.Down && owner != nil && owner.UID == u.UID
}

// InPodGroup tells whether a pod is in a PodGroup of its namespace, and has not ended.
//
// Upstream: pkg/controller/scheduling/podgroupprotection, its index of active pods.
func InPodGroup(p *corev1.Pod, group string) bool {
	of := p.Spec.SchedulingGroup
	return of != nil && of.PodGroupName != nil && *of.PodGroupName == group &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// Searches tells whether a command asks for what no single request can tell, so that
// the writer has to find it out.
func (c Command) Searches() bool {
	return c.Verb == VerbAsk && slices.Contains([]string{SubContents, SubUsers, SubTypes, SubReadings, SubReview, SubExpiry, SubObjects}, c.Subresource)
}
