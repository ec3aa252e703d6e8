package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The preconditions of a delete are those of its request. After a change that left the owners as
// they were, the precondition is the version seen then.
func TestWhatADeleteInsistsOn(t *testing.T) {
	c := deletion("p", "uid")
	c.If.ResourceVersion = "7"
	c.If.SameOwners = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "rs"}}
	c.Propagation = metav1.DeletePropagationForeground
	p := New(turn(c), Options{})
	first := p.Next()[0].Delete
	if *first.Preconditions.UID != "uid" || *first.Preconditions.ResourceVersion != "7" || *first.PropagationPolicy != metav1.DeletePropagationForeground {
		t.Errorf("at first it insists on %+v, with %v", first.Preconditions, first.PropagationPolicy)
	}
	p.Answer(0, moved)
	p.Next() // a read
	p.Answer(0, Response{Code: 200, Object: Object{UID: "uid", ResourceVersion: "8", Owners: c.If.SameOwners}})
	second := p.Next()[0].Delete
	if *second.Preconditions.UID != "uid" || *second.Preconditions.ResourceVersion != "8" {
		t.Errorf("after a change that does not matter the delete has the preconditions %+v, want the version of that change", second.Preconditions)
	}

	bare := New(turn(deletion("p", "uid")), Options{}).Next()[0].Delete
	if *bare.Preconditions.UID != "uid" || bare.Preconditions.ResourceVersion != nil || bare.PropagationPolicy != nil {
		t.Errorf("a plain delete insists on %+v, with %v", bare.Preconditions, bare.PropagationPolicy)
	}
}
