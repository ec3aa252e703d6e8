package query

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubUsers is the subresource of an ask for the users of an object of a kind in [UserKinds]: the
// pods that may need a PersistentVolumeClaim; the pods in a PodGroup that have not ended; the
// IPAddresses that would be in no ServiceCIDR without this one. The API server has no such
// subresource: the writer lists them live. The answer is [Users]. The condition Unused of a command (If) is the same check
// as a condition.
const SubUsers = "users"

// UserKinds are the kinds to list for the users of an object of a kind; nil for a kind whose
// users the writer cannot find.
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

// Users are the users of an object. The writer read the object after listing them, and it had
// the uid that the ask requires.
type Users struct {
	// Pods are the users of a claim ([UserOf]), at most [MaxUsers]; Names are the names of the
	// users of any other object, with the same bound. Count is the number of all users.
	Pods  []User   `json:"pods,omitempty"`
	Names []string `json:"names,omitempty"`
	Count int      `json:"count,omitempty"`
}

// Name adds a user of which only the name matters.
func (u *Users) Name(name string) {
	if u.Count++; len(u.Names) < MaxUsers {
		u.Names = append(u.Names, name)
	}
}

// Take adds a pod if it may need the claim.
func (u *Users) Take(p *corev1.Pod, claim string) {
	user, ok := UserOf(p, claim)
	if !ok {
		return
	}
	if u.Count++; len(u.Pods) < MaxUsers {
		u.Pods = append(u.Pods, user)
	}
}

// String summarizes the users.
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

// Need reports whether a pod may need the claim. It is true if some users are not named in Pods,
// because they are unknown.
func (u Users) Need(claim metav1.Object) bool {
	return u.Count > len(u.Pods) || slices.ContainsFunc(u.Pods, func(user User) bool { return user.Needs(claim) })
}

// MaxUsers bounds how many users an answer names.
const MaxUsers = 100

// User is a pod that has a node and names a claim.
type User struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Own is true if the claim has the name of an ephemeral volume's claim, which is made for
	// this pod and deleted with it. It is the pod's claim only if the pod also owns it.
	Own bool `json:"own,omitempty"`
	// Down is true for a pod that is known to be shut down: it was deleted, and its grace period
	// is 0.
	Down bool `json:"down,omitempty"`
}

// UserOf gives a pod as a user of a claim in its namespace. ok is false for a pod that does not
// name the claim, and for one without a node: it does not need the claim yet, and is not
// scheduled once the claim is deleted.
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

// ClaimOf is the name of the claim behind a volume of a pod, "" when there is none; own is true
// for the claim of an ephemeral volume, which is made for this pod and deleted with it.
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

// Needs reports whether the pod may need the claim. A pod that has ended may, because its node may
// still have the volume mounted; a pod that is shut down does not need a claim of its own.
//
// Upstream: pkg/controller/volume/pvcprotection, podUsesPVCForDeletion.
func (u User) Needs(claim metav1.Object) bool {
	if !u.Own {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(claim)
	return !u.Down && owner != nil && owner.UID == u.UID
}

// InPodGroup reports whether a pod is in a PodGroup of its namespace and has not ended.
//
// Upstream: pkg/controller/scheduling/podgroupprotection, its index of active pods.
func InPodGroup(p *corev1.Pod, group string) bool {
	of := p.Spec.SchedulingGroup
	return of != nil && of.PodGroupName != nil && *of.PodGroupName == group &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
