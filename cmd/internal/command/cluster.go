package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	// reach is how long one request at start-up may take, and how long the API server may
	// forbid it: one that has just come up does not know the roles yet.
	reach = 10 * time.Second
	// absence is how long the API server may fail to answer at start-up. A service that is
	// started while the API server restarts does not have to be started twice.
	absence = 30 * time.Second
	// reachPoll is how often it is asked meanwhile.
	reachPoll = 250 * time.Millisecond
)

// connect finds the API server and makes sure that it answers us.
//
// Errors: no cluster is named, the kubeconfig is broken, the server cannot be
// reached, or it refuses the credentials. Each says what to do.
func (o *clusterOptions) connect(ctx context.Context) (*rest.Config, error) {
	if err := noticeDeadConnections(); err != nil {
		return nil, err
	}
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "millrace/" + Version
	config.WarningHandler = rest.NoWarnings{} // as upstream: what is deprecated is the users' concern
	config.QPS = -1                           // API priority and fairness on the server does this better than a limit here
	probe := rest.CopyConfig(config)
	probe.Timeout = reach
	client, err := discovery.NewDiscoveryClientForConfig(probe)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's address and credentials: %w", err)
	}
	ask := func() error { return client.RESTClient().Get().AbsPath("/api").Do(ctx).Error() }
	switch err = reached(ctx, config.Host, ask); {
	case err == nil:
		return config, nil
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the API server at %s refuses our credentials: %w; check the user in --kubeconfig", config.Host, err)
	default:
		return nil, fmt.Errorf("the API server at %s does not answer: %w; check the address in --kubeconfig and that it is running", config.Host, err)
	}
}

// reached asks the API server until it answers and allows it, as long as that may take.
func reached(ctx context.Context, host string, ask func() error) error {
	began, told := time.Now(), false
	for {
		err := ask()
		limit := absence
		switch {
		case err == nil || apierrors.IsUnauthorized(err):
			return err
		case apierrors.IsForbidden(err):
			limit = reach
		case !told:
			told = true
			klog.FromContext(ctx).Info("Waiting for the API server, which does not answer", "host", host, "for", absence, "err", err)
		}
		if time.Since(began) >= limit || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(reachPoll):
		}
	}
}

// noticeDeadConnections sets the pace at which a connection to the API server that nothing
// comes through any more is found dead: client-go reads it from the environment,
// and would take 45 s. The operator may have set another one.
func noticeDeadConnections() error {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, "5"); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// load reads the kubeconfig that was named, or $KUBECONFIG, or the pod's
// service account.
func (o *clusterOptions) load() (*rest.Config, error) {
	if !o.named() {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no cluster: set --kubeconfig or KUBECONFIG, run inside a cluster, or use `millrace dev` to start a local one")
		}
		return config, err
	}
	rules := o.rules()
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = o.master
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return config, nil
}

// named tells whether a cluster is named, and not left to the pod's service account.
func (o *clusterOptions) named() bool {
	return o.kubeconfig != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || o.master != ""
}

// rules say which files are the kubeconfig.
func (o *clusterOptions) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return rules
}

// usualKubeconfig is the file that kubectl reads where none is named.
func usualKubeconfig() string { return clientcmd.RecommendedHomeFile }
