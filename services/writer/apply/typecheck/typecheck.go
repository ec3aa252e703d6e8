// Package typecheck finds expressions of admission policies that do not fit the types of the
// policies' objects.
//
// It uses upstream's own type checker, that of kube-controller-manager, on the schemas that the
// API server serves. The checker depends on the CEL library and much of the API server's code, so
// only a program's wiring imports this package.
package typecheck

import (
	"errors"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Check finds the expressions that do not fit. It reads schemas from the API server, and takes
// some tenths of a second for a policy about several kinds.
//
// A kind that is not served, or has no schema, is skipped, as upstream does. Upstream also skips
// kinds that it failed to look up; here that is an error, so that the check can be retried.
//
// Errors: the API server did not return the kinds or the schemas.
func Check(policy *admissionregistrationv1.ValidatingAdmissionPolicy, disco discovery.DiscoveryInterface, mapper meta.RESTMapper) ([]admissionregistrationv1.ExpressionWarning, error) {
	var lost losses
	checker := validating.TypeChecker{
		SchemaResolver: schemas{&resolver.ClientDiscoveryResolver{Discovery: disco}, &lost},
		RestMapper:     resources{mapper, &lost},
	}
	warnings := checker.Check(policy)
	if err := lost.err(); err != nil {
		return nil, fmt.Errorf("check the types of policy %s: %w", policy.Name, err)
	}
	return warnings, nil
}

// losses collects the errors that the checker ignores.
type losses struct {
	mu  sync.Mutex
	all []error
}

func (l *losses) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, err)
}

func (l *losses) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.all...)
}

// schemas records why a schema could not be read.
type schemas struct {
	resolver.SchemaResolver
	lost *losses
}

// ResolveSchema returns the schema of a kind.
func (s schemas) ResolveSchema(of schema.GroupVersionKind) (*spec.Schema, error) {
	found, err := s.SchemaResolver.ResolveSchema(of)
	if err != nil && !errors.Is(err, resolver.ErrSchemaNotFound) {
		s.lost.note(err)
	}
	return found, err
}

// resources records why a kind could not be looked up.
type resources struct {
	meta.RESTMapper
	lost *losses
}

// Reset makes the next lookup repeat discovery.
func (r resources) Reset() { meta.MaybeResetRESTMapper(r.RESTMapper) }

// KindsFor returns the kinds of a resource.
func (r resources) KindsFor(of schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	found, err := r.RESTMapper.KindsFor(of)
	if err != nil && !meta.IsNoMatchError(err) {
		r.lost.note(err)
	}
	return found, err
}
