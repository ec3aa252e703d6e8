// Package typecheck finds expressions of admission policies that do not fit the types of
// the objects that the policies are about.
//
// The work is upstream's own type checker, the one that kube-controller-manager uses, on
// the schemas that the API server serves. It brings the library of CEL and much of the
// API server's own along, so nothing but a program's wiring imports this package.
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

// Check finds the expressions that do not fit. It asks the API server for schemas, and
// takes some tenths of a second for a policy about several kinds.
//
// A kind that is not served, or has no schema, is left out, as upstream does. Upstream
// leaves out what it could not find out, too; here that is an error, and the check may be
// tried again.
//
// Errors: the API server did not say which kinds there are, or gave no schemas.
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

// losses are what the checker would rather not know.
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

// schemas notes why a schema could not be had.
type schemas struct {
	resolver.SchemaResolver
	lost *losses
}

// ResolveSchema is the schema of a kind.
func (s schemas) ResolveSchema(of schema.GroupVersionKind) (*spec.Schema, error) {
	found, err := s.SchemaResolver.ResolveSchema(of)
	if err != nil && !errors.Is(err, resolver.ErrSchemaNotFound) {
		s.lost.note(err)
	}
	return found, err
}

// resources notes why it is unknown whether there is a kind.
type resources struct {
	meta.RESTMapper
	lost *losses
}

// Reset has the kinds looked up anew.
func (r resources) Reset() { meta.MaybeResetRESTMapper(r.RESTMapper) }

// KindsFor are the kinds behind a resource.
func (r resources) KindsFor(of schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	found, err := r.RESTMapper.KindsFor(of)
	if err != nil && !meta.IsNoMatchError(err) {
		r.lost.note(err)
	}
	return found, err
}
