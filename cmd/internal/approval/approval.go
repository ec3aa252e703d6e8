// Package approval writes a person's decision about held writes into the annotations of an object, with
// the person's own credentials. It reads and writes nothing else.
package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Manager is the field manager of what a person writes.
const Manager = "kubectl-millrace"

// ErrChanged: the object is not as it was when its writes were held, so that a decision would not count.
var ErrChanged = errors.New("the object has changed since; look at millrace held once more")

// Decision is what a person decides.
type Decision struct {
	// Kind and Ref are the object of the key whose writes are held, and UID its uid.
	Kind kinds.Kind
	Ref  events.Ref
	UID  types.UID
	// Approve is false for a denial.
	Approve bool
	// Approval is the content. Write fills in By.
	events.Approval
}

// Who returns the name that the API server knows the client's user by.
//
// Errors: the API server refuses, or does not answer.
func Who(ctx context.Context, client kubernetes.Interface) (string, error) {
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the API server who you are: %w", err)
	}
	return who.Status.UserInfo.Username, nil
}

// Write writes a decision, in place of earlier ones about the same limits. It returns what it wrote.
//
// Errors: ErrChanged; the API server refuses, or does not answer.
func Write(ctx context.Context, config *rest.Config, d Decision) (events.Approval, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return d.Approval, err
	}
	if d.By, err = Who(ctx, client); err != nil {
		return d.Approval, err
	}
	resources, err := dynamic.NewForConfig(config)
	if err != nil {
		return d.Approval, err
	}
	var objects dynamic.ResourceInterface = resources.Resource(d.Kind.GVR())
	if d.Kind.Namespaced {
		objects = resources.Resource(d.Kind.GVR()).Namespace(d.Ref.Namespace)
	}
	err = d.write(ctx, objects)
	return d.Approval, err
}

func (d *Decision) write(ctx context.Context, objects dynamic.ResourceInterface) error {
	is, err := objects.Get(ctx, d.Ref.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case is.GetUID() != d.UID:
		return fmt.Errorf("%w (it has been created again)", ErrChanged)
	case is.GetGeneration() != d.Generation:
		return fmt.Errorf("%w (its generation is %d, and the writes are of %d)", ErrChanged, is.GetGeneration(), d.Generation)
	}
	mine, against := d.beside(is)
	after, err := d.annotate(ctx, objects, is, mine, against)
	if err != nil {
		return err
	}
	// The API server counts a change of a Deployment's annotations as a new generation: the decision
	// must be about the generation that its second annotation begins.
	if after.GetGeneration() == d.Generation+1 && equality.Semantic.DeepEqual(is.Object["spec"], after.Object["spec"]) {
		d.Generation = after.GetGeneration() + 1
		mine.Generation, against.Generation = d.Generation, d.Generation
		if after, err = d.annotate(ctx, objects, after, mine, against); err != nil {
			return err
		}
	}
	if after.GetGeneration() != d.Generation {
		return ErrChanged
	}
	return nil
}

// annotations are those of this decision, and of one of the other kind.
func (d *Decision) annotations() (mine, against string) {
	mine, against = events.ApprovalAnnotations(d.UID)
	if !d.Approve {
		mine, against = against, mine
	}
	return mine, against
}

// beside is the decision together with what the object has about other limits, which stays: an approval
// lifts no denial that it does not name. against is what is left of the other kind.
func (d *Decision) beside(is *unstructured.Unstructured) (mine, against events.Approval) {
	rest := func(annotation string) (a events.Approval) {
		if json.Unmarshal([]byte(is.GetAnnotations()[annotation]), &a) != nil || a.Generation != is.GetGeneration() {
			return events.Approval{}
		}
		a.Limits = slices.DeleteFunc(a.Limits, func(l string) bool { return slices.Contains(d.Limits, l) })
		return a
	}
	here, other := d.annotations()
	mine = d.Approval
	mine.Limits = slices.Concat(d.Limits, rest(here).Limits)
	return mine, rest(other)
}

// annotate writes both annotations, if the object is still as it is given.
func (d *Decision) annotate(ctx context.Context, objects dynamic.ResourceInterface, is *unstructured.Unstructured, mine, against events.Approval) (*unstructured.Unstructured, error) {
	here, other := d.annotations()
	annotations := map[string]any{other: nil}
	for annotation, a := range map[string]events.Approval{here: mine, other: against} {
		if len(a.Limits) == 0 {
			continue
		}
		text, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		annotations[annotation] = string(text)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.UID, "resourceVersion": is.GetResourceVersion(), "annotations": annotations,
	}})
	if err != nil {
		return nil, err
	}
	return objects.Patch(ctx, d.Ref.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
}
