package typecheck_test

import (
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"

	"github.com/millrace/millrace/services/writer/apply/typecheck"
)

// served is an API server without schemas, or one that fails.
type served struct {
	discovery.DiscoveryInterface
	err error
}

func (s served) OpenAPIV3() openapi.Client { return s }

func (s served) Paths() (map[string]openapi.GroupVersion, error) { return nil, s.err }

// mapped maps pods, or fails.
type mapped struct {
	meta.RESTMapper
	err    error
	resets *int
}

func (m mapped) KindsFor(of schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case of.Resource != "pods":
		return nil, &meta.NoResourceMatchError{PartialResource: of}
	}
	return []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}}, nil
}

func (m mapped) Reset() { *m.resets++ }

func policyOf(resource string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.spec.replicas < 5"}},
		},
	}
}

// A kind that is not served is skipped, and a failed lookup is an error: otherwise a policy that
// was not checked would count as correct. An unknown kind is looked up again.
func TestWhatCouldNotBeFoundOutIsAnError(t *testing.T) {
	cut := errors.New("connection refused")
	for name, c := range map[string]struct {
		resource string
		mapper   mapped
		schemas  served
		fails    bool
		resets   bool
	}{
		"no schema":            {resource: "pods"},
		"schemas unknown":      {resource: "pods", schemas: served{err: cut}, fails: true},
		"a kind that is not":   {resource: "widgets", resets: true},
		"whether there is one": {resource: "pods", mapper: mapped{err: cut}, fails: true},
	} {
		resets := 0
		c.mapper.resets = &resets
		warnings, err := typecheck.Check(policyOf(c.resource), c.schemas, c.mapper)
		if len(warnings) > 0 || (err != nil) != c.fails {
			t.Errorf("%s: the check ends with %v, %v; want no warning, and an error: %t", name, warnings, err, c.fails)
		}
		if c.fails && (!errors.Is(err, cut) || !strings.Contains(err.Error(), "policy small")) {
			t.Errorf("%s: the error is %v, want the cut connection with the policy's name", name, err)
		}
		if c.resets && resets == 0 {
			t.Errorf("%s: the mapper is not reset", name)
		}
	}
}
