package devices

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamclaims "k8s.io/kubernetes/pkg/controller/resourceclaim"
	claimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourceclaim"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
)

// ResourceClaims creates claims to devices, and reserves them.
var ResourceClaims = claimsUnder(nil)

// ResourceClaimsWithoutLists is the same controller without prioritized lists in templates.
var ResourceClaimsWithoutLists = claimsUnder(gate.Set{gate.DRAPrioritizedList: false})

// RefusedClaims is the same controller with some writes refused. Upstream emits an Event for each refused
// create; ours emits none if the writer retries. Upstream removes the finalizer of a claim in the sync that
// removes its last reservation, and does not try again later if that is refused.
var RefusedClaims = func() stage.Life {
	l := claimsUnder(nil)
	l.Chapter = 40 * time.Minute // two of upstream's longest back-offs
	l.Fair = func(theirs, ours []string) ([]string, []string) {
		untold := func(line string) string {
			if strings.Contains(line, ": create ResourceClaim : ") {
				return ""
			}
			return line
		}
		theirs = exemption.LetLines("finalizer-of-an-unused-claim", theirs, func(line string) string {
			const unused = " deleted false allocated false for []"
			return strings.Replace(line, "finalizers ["+resourcev1.Finalizer+"]"+unused, "finalizers []"+unused, 1)
		})
		return exemption.LetLines("refused-claims-told", theirs, untold), exemption.LetLines("refused-claims-told", ours, untold)
	}
	return l
}()

func claimsUnder(gates gate.Set) stage.Life {
	return stage.Life{
		Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
			claimmetrics.SetTestMode(true) // otherwise the lister of the first world would be kept
			features := upstreamclaims.Features{AdminAccess: true, PrioritizedList: gates.On(gate.DRAPrioritizedList)}
			devices := f.Resource().V1()
			rc, err := upstreamclaims.NewController(logr.Discard(), features, c, f.Core().V1().Pods(), f.Scheduling().V1alpha2().PodGroups(), devices.ResourceClaims(), devices.ResourceClaimTemplates())
			if err != nil {
				return nil, fmt.Errorf("make the claim controller: %w", err)
			}
			return func() { rc.Run(ctx, 1) }, nil
		},
		Ours:  resourceclaim.New(gates),
		Kinds: []kinds.Kind{kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceClaimTemplates.Kind}, Chapter: time.Minute,
		Line: claimLine,
	}
}

// claimLine is a claim, or the claims in a pod's status, without the generated suffixes of claims and the
// order of reservations.
func claimLine(obj metav1.Object) string {
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		by := slices.Clone(o.Status.ReservedFor)
		slices.SortFunc(by, func(a, b resourcev1.ResourceClaimConsumerReference) int { return cmp.Compare(a.UID, b.UID) })
		spec, err := json.Marshal(o.Spec)
		if err != nil {
			panic(err) // it came from JSON
		}
		return fmt.Sprintf("claim %s labels %v annotations %v owners %s finalizers %v deleted %v allocated %v for %v %s", unended(o.Name), o.Labels, o.Annotations,
			ownersOf(o), o.Finalizers, o.DeletionTimestamp != nil, o.Status.Allocation != nil, by, spec)
	case *corev1.Pod:
		said := map[string]string{}
		for _, s := range o.Status.ResourceClaimStatuses {
			said[s.Name] = "none"
			if s.ResourceClaimName != nil {
				said[s.Name] = unended(*s.ResourceClaimName)
			}
		}
		return fmt.Sprintf("pod %s claims %v", o.UID, said)
	}
	return ""
}

func ownersOf(o metav1.Object) (all string) {
	for _, ref := range o.GetOwnerReferences() {
		all += fmt.Sprintf("%s %s %s %s %v %v;", ref.APIVersion, ref.Kind, ref.Name, ref.UID, ref.Controller != nil && *ref.Controller, ref.BlockOwnerDeletion != nil)
	}
	return all
}

// unended is a name without its generated suffix, if it has one.
func unended(name string) string {
	const ending = 5
	if !strings.HasPrefix(name, "pod") || len(name) < ending {
		return name
	}
	return name[:len(name)-ending] + "*"
}
