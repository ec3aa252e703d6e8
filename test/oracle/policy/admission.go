package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kube-openapi/pkg/validation/spec"
	upstream "k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	policystatus "github.com/millrace/millrace/services/reconcilers/controllers/validatingadmissionpolicystatus"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
)

// ComparePolicy shows a policy to both, and returns the difference in its status; "" if there is none. Both
// use upstream's type checker, as the writer does.
func ComparePolicy(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) (diff string, err error) {
	var theirs string
	synctest.Test(t, func(*testing.T) { theirs, err = policyOfTheirs(policy.DeepCopy()) })
	if err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	ours, err := policyOfOurs(policy)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	if theirs != ours {
		return fmt.Sprintf("- %s\n+ %s\n", theirs, ours), nil
	}
	return "", nil
}

func policyOfTheirs(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (said string, err error) {
	time.Sleep(time.Until(objects.Now))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset(policy)
	var mu sync.Mutex
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		said += effect.JSON(spoken(effect.Parse(action.(clienttesting.PatchActionImpl).GetPatch())["status"]))
		return true, policy, nil
	})
	f := informers.NewSharedInformerFactory(client, 0)
	c, err := upstream.NewController(f.Admissionregistration().V1().ValidatingAdmissionPolicies(), client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker())
	if err != nil {
		return "", fmt.Errorf("make the controller: %w", err)
	}
	f.Start(ctx.Done())
	synctest.Wait()
	stage.Beside(func(ctx context.Context) { c.Run(ctx, 1) }, func() {
		time.Sleep(time.Second)
		synctest.Wait()
	})
	cancel()
	f.Shutdown()
	return said, nil
}

// policyOfOurs is our status after the answers to its questions.
func policyOfOurs(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (said string, err error) {
	s, key := reconciletest.NewWorld().Put(kinds.ValidatingAdmissionPolicies.Kind, policy), events.Key{Name: policy.Name}
	for range 2 {
		d, _ := policystatus.Controller.Ask(s, key, objects.Now)
		if len(d.Commands) == 0 {
			return "", nil
		}
		switch c := d.Commands[0]; c.Verb {
		case events.VerbAsk:
			r := frozen.Answered(query.Types{Warnings: checker().Check(policy)})
			r.Ref = c.Ref()
			s.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: policy.UID, ResourceVersion: policy.ResourceVersion, At: objects.Now, Results: []events.Result{r}})
		default:
			var next admissionregistrationv1.ValidatingAdmissionPolicy
			if err := json.Unmarshal(c.Body, &next); err != nil {
				return "", err
			}
			if len(next.Status.Conditions) != len(policy.Status.Conditions) {
				return "", fmt.Errorf("conditions that others wrote are gone")
			}
			status, _ := effect.Parse(c.Body)["status"].(map[string]any)
			delete(status, "conditions")
			return effect.JSON(spoken(status)), nil
		}
	}
	return "", frozen.ErrInquisitive
}

// spoken is a part of an object without empty values; if nothing is left, it is an empty object.
func spoken(part any) any {
	if left := effect.NonEmpty(part); left != nil {
		return left
	}
	return map[string]any{}
}

// checker knows the types of Deployments; it has no schema of ConfigMaps.
func checker() *validating.TypeChecker {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	return &validating.TypeChecker{SchemaResolver: deploymentsOnly{}, RestMapper: m}
}

type deploymentsOnly struct{}

// ResolveSchema returns the schema of a kind.
func (deploymentsOnly) ResolveSchema(of schema.GroupVersionKind) (*spec.Schema, error) {
	if of.Kind != "Deployment" {
		return nil, resolver.ErrSchemaNotFound
	}
	one := spec.StringProperty()
	object := func(properties map[string]spec.Schema) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties}}
	}
	whole := object(map[string]spec.Schema{
		"apiVersion": *one, "kind": *one,
		"metadata": object(map[string]spec.Schema{"name": *one}),
		"spec":     object(map[string]spec.Schema{"replicas": *spec.Int64Property(), "paused": *spec.BooleanProperty()}),
	})
	return &whole, nil
}
