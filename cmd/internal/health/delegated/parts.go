package delegated

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// The ConfigMap in which the API server publishes the authorities of client certificates.
const (
	lookupName, lookupKey = "extension-apiserver-authentication", "client-ca-file"
	lookupRole            = "extension-apiserver-authentication-reader"
)

// reviewTimeout bounds one review.
const reviewTimeout = 10 * time.Second

// backoff is the back-off between retries of a review, if the API server asks for a retry.
// Upstream: k8s.io/apiserver/pkg/server/options, DefaultAuthWebhookRetryBackoff.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// authenticator authenticates the user of a request; nil if it could know no credential.
// Upstream: k8s.io/apiserver/pkg/server/options, DelegatingAuthenticationOptions.ApplyTo.
func (o Options) authenticator(ctx context.Context, tokens *kubernetes.Clientset) (authenticator.Request, error) {
	config := authenticatorfactory.DelegatingAuthenticatorConfig{CacheTTL: o.TokenTTL, WebhookRetryBackoff: backoff(), TokenAccessReviewTimeout: reviewTimeout}
	var err error
	if tokens != nil {
		config.TokenAccessReviewClient = tokens.AuthenticationV1()
	}
	if config.ClientCertificateCAContentProvider, err = o.authorities(ctx, tokens); err != nil {
		return nil, err
	}
	if o.Front.CAFile != "" {
		ca, err := fromFile(ctx, "request-header", o.Front.CAFile, "--requestheader-client-ca-file")
		if err != nil {
			return nil, err
		}
		words := func(list []string) headerrequest.StringSliceProvider { return headerrequest.StaticStringSlice(list) }
		config.RequestHeaderConfig = &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider: ca, AllowedClientNames: words(o.Front.Names), UsernameHeaders: words(o.Front.UserHeaders),
			UIDHeaders: words(o.Front.UIDHeaders), GroupHeaders: words(o.Front.GroupHeaders), ExtraHeaderPrefixes: words(o.Front.Extra),
		}
	}
	request, _, err := config.New()
	if err != nil {
		return nil, fmt.Errorf("make the authentication of requests for metrics: %w", err)
	}
	return request, nil
}

// authorities are the authorities of client certificates; nil: certificates are ignored.
func (o Options) authorities(ctx context.Context, cluster *kubernetes.Clientset) (dynamiccertificates.CAContentProvider, error) {
	switch {
	case o.ClientCAFile != "":
		return fromFile(ctx, "client-ca", o.ClientCAFile, "--client-ca-file")
	case cluster == nil || o.SkipLookup:
		return nil, nil
	}
	once, done := context.WithTimeout(ctx, lookupTimeout)
	defer done()
	_, err := cluster.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(once, lookupName, metav1.GetOptions{})
	switch {
	case err == nil:
		ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, lookupName, lookupKey, cluster)
		if err != nil {
			return nil, fmt.Errorf("look up the authorities of client certificates in the cluster: %w", err)
		}
		go ca.Run(ctx, 1)
		return ca, nil
	case o.Authentication != "" && !o.TolerateLookupFailure:
		return nil, fmt.Errorf("look up the authorities of client certificates in the cluster: %w; bind the Role %s in kube-system, name --client-ca-file, or set --authentication-skip-lookup or --authentication-tolerate-lookup-failure", err, lookupRole)
	}
	klog.FromContext(ctx).Info("Metrics and profiles are served to no client certificate, since its authorities were not found in the cluster", "reason", err, "cure", "bind the Role "+lookupRole+" in kube-system")
	return nil, nil
}

// fromFile are the authorities in a file, reloaded when it changes.
func fromFile(ctx context.Context, purpose, file, flag string) (dynamiccertificates.CAContentProvider, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile(purpose, file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	go ca.Run(ctx, 1)
	return ca, nil
}

// authorizer authorizes users. The group system:masters may do all. Without an API server, no
// other user may do anything.
// Upstream: k8s.io/apiserver/pkg/server/options, DelegatingAuthorizationOptions.toAuthorizer.
func (o Options) authorizer(cluster *kubernetes.Clientset) (authorizer.Authorizer, error) {
	masters := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	if cluster == nil {
		return masters, nil
	}
	rest, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: cluster.AuthorizationV1(), AllowCacheTTL: o.AllowTTL, DenyCacheTTL: o.DenyTTL,
		WebhookRetryBackoff: backoff(), Compiler: noConditions{},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make the authorization of requests for metrics: %w", err)
	}
	return union.New(masters, rest), nil
}

// noConditions stands for the compiler of the conditions on which reviews are requested. There
// are no conditions, and upstream's compiler takes megabytes of memory once it is created.
type noConditions struct{}

// CompileCELExpression is [cel.Compiler].
func (noConditions) CompileCELExpression(cel.ExpressionAccessor) (cel.CompilationResult, error) {
	return cel.CompilationResult{}, errors.New("reviews have no conditions")
}
