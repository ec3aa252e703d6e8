// Package kubeconfig has the flags for the API server's address and credentials. It loads them, as kubectl does or
// from the pod's service account, and waits at the start of a process for an API server that does not answer yet.
package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/program"
)

// Options are the flags for the API server's address and credentials.
type Options struct {
	// File is the kubeconfig; empty: $KUBECONFIG, or the pod's service account.
	File   string
	master string
}

// Add adds the flags.
func (o *Options) Add(f *pflag.FlagSet) {
	f.StringVar(&o.File, "kubeconfig", o.File, "`file` with the API server's address and credentials (default $KUBECONFIG, then the pod's service account)")
	f.StringVar(&o.master, "master", o.master, "`address` of the API server; overrides the kubeconfig's")
}

const (
	// reach is the time-out of one request at start-up, and how long Connect retries when the API
	// server forbids it: an API server that has just started does not know the roles yet.
	reach = 10 * time.Second
	// absence is how long Connect retries when the API server does not answer, so that a service
	// can start while the API server restarts.
	absence = 30 * time.Second
	// reachPoll is the interval of these retries.
	reachPoll = 250 * time.Millisecond
)

// Connect loads the kubeconfig and verifies that the API server answers and accepts the
// credentials.
//
// Errors: no cluster is named, the kubeconfig is broken, the server cannot be
// reached, or it refuses the credentials. Each says what to do.
func (o *Options) Connect(ctx context.Context) (*rest.Config, error) {
	if err := noticeDeadConnections(); err != nil {
		return nil, err
	}
	config, err := o.Load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "millrace/" + program.Version
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

// Load reads the kubeconfig of --kubeconfig, or of $KUBECONFIG, or the pod's
// service account.
//
// Errors: no cluster is named; the kubeconfig cannot be read.
func (o *Options) Load() (*rest.Config, error) {
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

// named is whether a flag or $KUBECONFIG names a cluster; otherwise load uses the pod's service account.
func (o *Options) named() bool {
	return o.File != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || o.master != ""
}

// rules are client-go's rules for finding the kubeconfig.
func (o *Options) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.File
	return rules
}

// reached retries ask until it succeeds or is unauthorized: for absence while there is no answer, and
// for reach since the answer has been that it is forbidden. An API server that has just started forbids
// everything until it has read its roles, however long the service has waited for it.
func reached(ctx context.Context, host string, ask func() error) error {
	began, told := time.Now(), false
	var forbidden time.Time // since when; zero while it is not
	for {
		err := ask()
		until := began.Add(absence)
		switch {
		case err == nil || apierrors.IsUnauthorized(err):
			return err
		case apierrors.IsForbidden(err):
			if forbidden.IsZero() {
				forbidden = time.Now()
			}
			until = forbidden.Add(reach)
		case !told:
			told = true
			klog.FromContext(ctx).Info("Waiting for the API server, which does not answer", "host", host, "for", absence, "err", err)
		}
		if !apierrors.IsForbidden(err) {
			forbidden = time.Time{}
		}
		if !time.Now().Before(until) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(reachPoll):
		}
	}
}

// noticeDeadConnections sets the HTTP/2 health check of connections to the API server: client-go
// reads its periods from the environment, and by default finds a dead connection after 45 s.
// Periods that the operator has set stay.
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

// Look reads the kubeconfig.
func (o *Options) Look() (doctor.Kubeconfig, *rest.Config) {
	config, err := o.Load()
	k := doctor.Kubeconfig{Err: err}
	if config != nil {
		k.Host = config.Host
	}
	if !o.named() {
		if err == nil {
			k.From = "the pod's service account"
		} else if _, missing := os.Stat(usualKubeconfig()); missing == nil {
			k.Usual = usualKubeconfig()
		}
		return k, config
	}
	rules := o.rules()
	k.From = strings.Join(rules.GetLoadingPrecedence(), ", ")
	if raw, err := rules.Load(); err == nil {
		k.Context = raw.CurrentContext
	}
	if inner := errors.Unwrap(err); inner != nil {
		k.Err = inner // without Load's prefix, which the finding has as well
	}
	return k, config
}

// usualKubeconfig is the file that kubectl reads by default.
func usualKubeconfig() string { return clientcmd.RecommendedHomeFile }
