// Package delegated authenticates and authorizes requests by the API server, as Kubernetes'
// components do before they serve metrics and profiles: with a TokenReview for a bearer token,
// and a SubjectAccessReview for the verb and the path.
package delegated

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/health"
)

// Options are the API server to ask, and the caching of its answers. The flags have
// kube-controller-manager's names.
type Options struct {
	// Authentication and Authorization are kubeconfigs of users that may create TokenReviews
	// and SubjectAccessReviews; empty: the service account of the pod. Without either, no
	// credential is known, or none is allowed anything.
	Authentication, Authorization string
	// SkipLookup leaves out the lookup of the authorities of client certificates in the
	// cluster; ClientCAFile replaces the lookup. If the lookup fails, Begin returns an error if
	// Authentication is set and failures are not tolerated. Otherwise it logs the failure, and
	// no client certificate is known.
	SkipLookup, TolerateLookupFailure bool
	// TokenTTL, AllowTTL and DenyTTL are how long answers are cached; 0: not at all.
	TokenTTL, AllowTTL, DenyTTL time.Duration
	// ClientCAFile holds the authorities of client certificates, as PEM.
	ClientCAFile string
	// Front is the front proxy that may name the user of a request in headers.
	Front FrontProxy
}

// FrontProxy has the certificates of proxies that may name users, and the headers for it. Without
// CAFile there is no such proxy: the cluster's own is not looked up, because no API server
// forwards requests to this process.
type FrontProxy struct {
	CAFile                                       string
	Names                                        []string
	UserHeaders, UIDHeaders, GroupHeaders, Extra []string
}

// Defaults are kube-controller-manager's.
func Defaults() Options {
	const ttl = 10 * time.Second
	return Options{TokenTTL: ttl, AllowTTL: ttl, DenyTTL: ttl, Front: FrontProxy{
		UserHeaders: []string{"x-remote-user"}, GroupHeaders: []string{"x-remote-group"}, Extra: []string{"x-remote-extra-"},
	}}
}

const (
	// asks per second and burst bound the reviews that requests with invalid tokens cause.
	asks, burst = 20, 40
	// lookupTimeout bounds the lookup of the authorities at the start.
	lookupTimeout = 10 * time.Second
)

// Reviewer judges requests by reviews of the API server.
type Reviewer struct {
	users authenticator.Request
	may   authorizer.Authorizer
	away  atomic.Bool // the API server did not answer the last review
}

var _ health.Reviewer = (*Reviewer)(nil)

// Begin makes a reviewer, and keeps its certificate authorities up to date until the context
// ends. It returns nil if no API server is named and the process has no pod's service account.
//
// Errors: a kubeconfig or a file of authorities cannot be read, or the lookup failed.
func Begin(ctx context.Context, o Options) (*Reviewer, error) {
	users, err := client(o.Authentication, "--authentication-kubeconfig")
	if err != nil {
		return nil, err
	}
	rights, err := client(o.Authorization, "--authorization-kubeconfig")
	if err != nil {
		return nil, err
	}
	if users == nil && o.ClientCAFile == "" && o.Front.CAFile == "" {
		return nil, nil
	}
	v := &Reviewer{}
	if v.users, err = o.authenticator(ctx, users); err != nil || v.users == nil {
		return nil, err
	}
	v.may, err = o.authorizer(rights)
	return v, err
}

// client is a client for the API server of a kubeconfig, or of the pod; nil if there is neither.
func client(kubeconfig, flag string) (*kubernetes.Clientset, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	}
	switch {
	case kubeconfig == "" && (errors.Is(err, rest.ErrNotInCluster) || errors.Is(err, fs.ErrNotExist)):
		return nil, nil // no pod, or one without a service account's token
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	config.UserAgent, config.QPS, config.Burst = "millrace-health", asks, burst
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	return c, nil
}

// May is [health.Reviewer].
func (v *Reviewer) May(r *http.Request) error {
	response, known, err := v.users.AuthenticateRequest(r)
	if !known {
		return v.refuse(err, health.ErrUnknown)
	}
	decision, _, err := v.may.Authorize(r.Context(), authorizer.AttributesRecord{User: response.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
	if decision == authorizer.DecisionAllow {
		v.answered()
		return nil
	}
	return v.refuse(err, fmt.Errorf("%w: user %q may not %s %s", health.ErrForbidden, response.User.GetName(), strings.ToLower(r.Method), r.URL.Path))
}

// refuse is verdict, unless the API server gave none. It logs the reason once, until the API
// server answers again.
func (v *Reviewer) refuse(err, verdict error) error {
	if !unanswered(err) {
		v.answered()
		return verdict
	}
	if !v.away.Swap(true) {
		klog.Background().Error(err, "Metrics and profiles are refused to those who have a credential of the API server, since it does not say who they are and what they may do; is it away, and has this process the ClusterRole system:auth-delegator?")
	}
	return health.ErrUnanswered
}

func (v *Reviewer) answered() {
	if v.away.Swap(false) {
		klog.Background().Info("The API server says again who may see metrics and profiles")
	}
}

// unanswered is whether an error means that the API server did not answer or refused to review,
// as opposed to a verdict.
func unanswered(err error) bool {
	if all, is := errors.AsType[utilerrors.Aggregate](err); is {
		return slices.ContainsFunc(all.Errors(), unanswered)
	}
	_, refused := errors.AsType[*apierrors.StatusError](err)
	_, silent := errors.AsType[*url.Error](err)
	return refused || silent || errors.Is(err, context.DeadlineExceeded)
}
