package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/health/delegated"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/telemetry"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/apply/mint"
	"github.com/millrace/millrace/services/writer/limits"
)

// clusterOptions are the flags for the API server's address and credentials.
type clusterOptions struct {
	kubeconfig string
	master     string
}

func (o *clusterOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "`file` with the API server's address and credentials (default $KUBECONFIG, then the pod's service account)")
	f.StringVar(&o.master, "master", o.master, "`address` of the API server; overrides the kubeconfig's")
}

// controllerOptions are the flags that select the controllers and configure them.
type controllerOptions struct {
	controllers []string
	shadow      []string
	rootCAFile  string
	trusted     []byte // the kubeconfig's certificates, where that is read
	keyFile     string // of the key that signs tokens
	collect     bool
	// endpoints is the maximum of endpoints in a slice, mirrored that of mirrored addresses of a
	// subset, and finished that of terminated pods that are kept.
	endpoints, mirrored, finished int
	// recount is the resync period of the usage of quotas.
	recount time.Duration
	// patient turns off the forced detach of volumes after a time-out of their node.
	patient bool
	// unused is how long an old token must have been unused before it is cleaned up.
	unused time.Duration
	// dynamic turns on dynamic provisioning of volumes.
	dynamic     bool
	features    features
	nodes       nodeOptions
	autoscaling autoscalingOptions
	ranges      rangeOptions
	// certificates are the signers of certificates.
	certificates certificateOptions
	// chosen are the controllers that the flags select, set by choose.
	chosen choice
}

// limit is how many turns of one controller a writer carries out concurrently, for
// controllers that have a flag for it.
type limit struct {
	controller, flag, of string
	turns                int
}

type concurrency []limit

func newConcurrency() concurrency {
	return concurrency{
		{"deployment-controller", "concurrent-deployment-syncs", "deployments", 50},
		{"replicaset-controller", "concurrent-replicaset-syncs", "replica sets", 50},
		{"replicationcontroller-controller", "concurrent-rc-syncs", "replication controllers", 50},
		{"statefulset-controller", "concurrent-statefulset-syncs", "stateful sets", 50},
		{"daemonset-controller", "concurrent-daemonset-syncs", "daemon sets", 50},
		{"job-controller", "concurrent-job-syncs", "jobs", 50},
		{"cronjob-controller", "concurrent-cron-job-syncs", "cron jobs", 50},
		{"ttl-after-finished-controller", "concurrent-ttl-after-finished-syncs", "finished jobs whose time is up", 50},
		{"endpoints-controller", "concurrent-endpoint-syncs", "the endpoints of services", 50},
		{"endpointslice-controller", "concurrent-service-endpoint-syncs", "the endpoint slices of services", 50},
		{"endpointslice-mirroring-controller", "mirroring-concurrent-service-endpoint-syncs", "mirrored endpoints", 50},
		{"ephemeral-volume-controller", "concurrent-ephemeralvolume-syncs", "the claims of pods' own volumes", 50},
		{"resourceclaim-controller", "concurrent-resourceclaim-syncs", "claims to devices", 50},
		{"device-taint-eviction-controller", "concurrent-device-taint-eviction-syncs", "pods that are driven away from devices", 50},
		{"horizontal-pod-autoscaler-controller", "concurrent-horizontal-pod-autoscaler-syncs", "autoscalers", 50},
		{"garbage-collector-controller", "concurrent-gc-syncs", "the garbage collector", 100},
		{"namespace-controller", "concurrent-namespace-syncs", "namespaces that are being emptied", 10},
		{"resourcequota-controller", "concurrent-resource-quota-syncs", "resource quotas", 50},
		{"serviceaccount-token-controller", "concurrent-serviceaccount-token-syncs", "tokens of service accounts", 50},
		{"validatingadmissionpolicy-status-controller", "concurrent-validating-admission-policy-status-syncs", "policies whose expressions are checked", 5},
	}
}

func newControllerOptions() controllerOptions {
	return controllerOptions{controllers: []string{"*"}, collect: true, endpoints: 100, mirrored: 1000, finished: 12500, recount: 5 * time.Minute, unused: 365 * 24 * time.Hour, dynamic: true, nodes: newNodeOptions(), autoscaling: newAutoscalingOptions(), ranges: newRangeOptions(), certificates: newCertificateOptions()}
}

func (o *controllerOptions) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.controllers, "controllers", o.controllers,
		"controllers to run: '*' enables all that are on by default, 'name' enables one, '-name' disables one; the first match wins\nAll controllers: "+strings.Join(ours(), ", "))
	f.StringSliceVar(&o.shadow, "shadow", o.shadow,
		"controllers of --controllers in shadow: they decide, write nothing, and are compared with kube-controller-manager; '*' for all")
	f.BoolVar(&o.collect, "enable-garbage-collector", o.collect, "run the garbage collector; must be the same as kube-apiserver's flag")
	f.IntVar(&o.endpoints, "max-endpoints-per-slice", o.endpoints, "maximum number of endpoints in an EndpointSlice, 1 to 1000")
	f.IntVar(&o.mirrored, "mirroring-max-endpoints-per-subset", o.mirrored, "maximum number of addresses of each subset of Endpoints that are mirrored to an EndpointSlice, 1 to 1000")
	f.IntVar(&o.finished, "terminated-pod-gc-threshold", o.finished, "number of terminated pods that are kept; 0 or less keeps all")
	f.BoolVar(&o.patient, "disable-force-detach-on-timeout", o.patient,
		"do not detach volumes by force from a node that has been not ready for six minutes; only the taint node.kubernetes.io/out-of-service then detaches them")
	f.DurationVar(&o.recount, "resource-quota-sync-period", o.recount, "interval of the full recount of quota usage; 0 or less for never")
	f.DurationVar(&o.unused, "legacy-service-account-token-clean-up-period", o.unused,
		"how long an automatically created service account token must be unused before it is marked invalid, and again before it is deleted")
	f.BoolVar(&o.dynamic, "enable-dynamic-provisioning", o.dynamic, "provision volumes for claims by their StorageClasses")
	f.StringVar(&o.keyFile, "service-account-private-key-file", o.keyFile,
		"`file` with the private key, RSA or ECDSA, that signs tokens of service accounts; without it serviceaccount-token-controller is off. Only the writer reads it")
	o.features.add(f)
	titled("node lifecycle controller", o.nodes.add)(f)
	titled("horizontal pod autoscaler", o.autoscaling.add)(f)
	titled("node and Service ranges", o.ranges.add)(f)
	titled("certificate signer", o.certificates.add)(f)
	o.addRootCA(f)
	titled("no-effect", addMoot)(f)
}

// config translates the flags to the configuration of the controllers.
//
// Errors: a number is out of range; the root certificate cannot be read.
func (o *controllerOptions) config() (controllers.Config, error) {
	if o.endpoints < 1 || o.endpoints > 1000 {
		return controllers.Config{}, fmt.Errorf("read --max-endpoints-per-slice: %d is not from 1 to 1000", o.endpoints)
	}
	if o.mirrored < 1 || o.mirrored > 1000 {
		return controllers.Config{}, fmt.Errorf("read --mirroring-max-endpoints-per-subset: %d is not from 1 to 1000", o.mirrored)
	}
	if o.unused <= 0 {
		return controllers.Config{}, fmt.Errorf("read --legacy-service-account-token-clean-up-period: %v is no time to wait; leave the controller out to keep all tokens (--controllers=*,-legacy-serviceaccount-token-cleaner-controller)", o.unused)
	}
	gates, err := o.features.config()
	if err != nil {
		return controllers.Config{}, err
	}
	ca, err := o.rootCA()
	if err != nil {
		return controllers.Config{}, err
	}
	kept := o.finished
	if kept <= 0 {
		kept = -1
	}
	recount := o.recount
	if recount <= 0 {
		recount = -1
	}
	nodes, err := o.nodes.config()
	if err != nil {
		return controllers.Config{}, err
	}
	autoscaling, err := o.autoscaling.config()
	if err != nil {
		return controllers.Config{}, err
	}
	ranges, err := o.ranges.config()
	if err != nil {
		return controllers.Config{}, err
	}
	signers, err := o.certificates.signers()
	if err != nil {
		return controllers.Config{}, err
	}
	return controllers.Config{Ranges: ranges, Gates: gates, Signers: signers, StorageVersions: gates.On(gate.APIServerIdentity) && gates.On(gate.StorageVersionAPI), RootCA: ca, Tokens: o.keyFile != "", Nodes: nodes, Autoscaling: autoscaling, QuotaPeriod: recount, TokenPeriod: o.unused, StaticVolumes: !o.dynamic, EndpointsPerSlice: o.endpoints, MirroredPerSubset: o.mirrored, TerminatedPods: kept, Attaching: controllers.Attaching{Patient: o.patient}}, nil
}

// selection is the list of controllers for [controllers.Select].
func (o *controllerOptions) selection() []string {
	if o.collect {
		return o.controllers
	}
	return append([]string{"-garbage-collector-controller"}, o.controllers...)
}

// mint makes the signer of service account tokens, as kube-controller-manager has it; nil
// without a key.
//
// Errors: the key cannot be read, or is not a key; as [controllerOptions.rootCA].
func (o *controllerOptions) mint() (*mint.Mint, error) {
	if o.keyFile == "" {
		return nil, nil
	}
	key, err := os.ReadFile(o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("read --service-account-private-key-file: %w", err)
	}
	ca, err := o.rootCA()
	if err != nil {
		return nil, err
	}
	m, err := mint.New(key, ca)
	if err != nil {
		return nil, fmt.Errorf("read --service-account-private-key-file %s: %w", o.keyFile, err)
	}
	return m, nil
}

// secrets sign service account tokens and certificates. Only the writer has them.
type secrets struct {
	tokens       *mint.Mint
	certificates *authority.Authority
}

// secrets reads the writer's signing keys.
//
// Errors: as [controllerOptions.mint] and [certificateOptions.authority].
func (o *controllerOptions) secrets() (s secrets, err error) {
	if s.tokens, err = o.mint(); err != nil {
		return s, err
	}
	s.certificates, err = o.certificates.authority()
	return s, err
}

// busOptions are the flags for the bus: its address, retention and replicas.
type busOptions struct {
	at         connect.Connection
	monitoring []string
	auditGrade bool
	guest      bool // the process reads without consumers
	replicas   int
	maxAge     time.Duration
	maxBytes   int64
	retention  retention
}

func newBusOptions() busOptions {
	return busOptions{replicas: 1, maxAge: 24 * time.Hour}
}

func (o *busOptions) add(f *pflag.FlagSet) {
	o.at.Add(f)
	f.StringSliceVar(&o.monitoring, "nats-monitoring", o.monitoring,
		"monitoring `addresses` of all NATS servers, such as http://nats-0:8222; of millrace bus its health address with https, to which this service logs in with its user and password. Without them the sync interval of NATS is not known")
	f.BoolVar(&o.auditGrade, "require-audit-grade", o.auditGrade,
		"do not start on a bus that could lose acknowledged messages with its present settings; the log names these settings in any case")
	f.IntVar(&o.replicas, "stream-replicas", o.replicas, "replicas of each stream: 1, or 3 on a cluster of three servers")
	o.addRetention(f)
}

func (o *busOptions) addRetention(f *pflag.FlagSet) {
	f.DurationVar(&o.maxAge, "stream-max-age", o.maxAge, "how long deltas, turns and outcomes are kept, unless --retention sets another time; existing objects never expire")
	f.Int64Var(&o.maxBytes, "stream-max-bytes", o.maxBytes, "size limit of each stream in bytes, unless --retention sets another limit; 0 for none")
	f.Var(&o.retention, "retention",
		"age and size limits of a kind's deltas, or of a controller's turns and outcomes, such as pods=72h/2Gi,leases.coordination.k8s.io=1h,replicaset-controller=168h; the process that started last sets them")
}

// serverOptions are the flags of the embedded NATS server.
type serverOptions struct {
	dataDir string
	listen  string
	sync    time.Duration // 0: after every write
	guests  string        // file with the readers' password
	store   storeSize
	// accounts, name and cluster are for a server in a process of its own; see addCluster.
	accounts string // file with accounts and users
	name     string
	cluster  embedded.ClusterOptions
	// alone is true for a server in a process of its own.
	alone  bool
	secure securityOptions
}

func newServerOptions() serverOptions {
	return serverOptions{dataDir: defaultDataDir(), sync: 2 * time.Minute}
}

func (o *serverOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.dataDir, "data-dir", o.dataDir, "`directory` of the streams")
	f.StringVar(&o.listen, "nats-listen", o.listen, "`address` on which the embedded NATS server also serves other processes, such as 127.0.0.1:4222 (default none)")
	f.StringVar(&o.guests, "reader-password-file", o.guests,
		"`file` with the password of the user reader, who can only read the record (nats://reader:PASSWORD@...); by default one is created in the data directory")
	o.store.add(f)
	o.secure.add(f)
	f.Var((*syncInterval)(&o.sync), "sync-interval", "interval at which streams are synced to disk; 'always' syncs after every write, so that a power failure loses nothing")
}

func defaultDataDir() string {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "millrace-data"
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "millrace")
}

// serviceOptions are the flags that every process has.
type serviceOptions struct {
	addressOptions
	profiling bool
	// contention adds block profiles to profiling.
	contention bool
	metrics    metricOptions
	access     health.Access
	delegated  delegated.Options
	tls        tlsOptions
	// ctrl has the controllers, which /configz shows, and the feature gates, which turn pages off;
	// nil in a process without controllers.
	ctrl *controllerOptions
	// busCert and busKey are the certificate files of the NATS server in this process.
	busCert, busKey string
	grace           time.Duration
	tracing         telemetry.Options
}

func newServiceOptions() serviceOptions {
	return serviceOptions{addressOptions: newAddressOptions(), access: newAccess(), delegated: delegated.Defaults(), grace: 10 * time.Second, tracing: telemetry.NewOptions()}
}

func (o *serviceOptions) add(f *pflag.FlagSet) {
	o.addressOptions.add(f, "`address` of /healthz, /livez, /readyz, /metrics, /configz, /flagz and /statusz; empty serves none")
	o.metrics.add(f)
	addAccess(f, &o.access)
	addDelegation(f, &o.delegated)
	o.tls.add(f)
	f.BoolVar(&o.profiling, "profiling", o.profiling, "serve /debug/pprof on the health address, with the access rules of /metrics")
	f.BoolVar(&o.contention, "contention-profiling", o.contention, "with --profiling, also serve block profiles")
	f.DurationVar(&o.grace, "shutdown-timeout", o.grace, "how long to finish what is in flight after SIGTERM")
	f.DurationVar(&o.grace, "controller-shutdown-timeout", o.grace, "the same as --shutdown-timeout")
}

// check validates the flags before anything is started.
func (o *serviceOptions) check() error {
	_, _, err := o.address()
	return errors.Join(err, o.metrics.check())
}

// writerOptions are the flags of the writer.
type writerOptions struct {
	mode        string
	impersonate bool
	maxInFlight int
	// qps limits the requests per second of each controller, and burst those sent at once after
	// a pause. qps < 0 is no limit.
	qps        float32
	burst      int
	concurrent concurrency
	limitsFile string
}

func newWriterOptions() writerOptions {
	return writerOptions{mode: "apply", impersonate: true, maxInFlight: 200, qps: -1, burst: 30, concurrent: newConcurrency()}
}

func (o *writerOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.mode, "mode", o.mode, "what the writer does with a turn: apply, dry-run (on the API server) or off")
	f.BoolVar(&o.impersonate, "use-service-account-credentials", o.impersonate, "write as the service account of each controller in kube-system, by impersonation")
	f.IntVar(&o.maxInFlight, "max-requests-in-flight", o.maxInFlight, "maximum number of concurrent requests to the API server")
	f.Float32Var(&o.qps, "kube-api-qps", o.qps, "requests per second of each controller to the API server; below 0 only the API server's own limits hold")
	f.IntVar(&o.burst, "kube-api-burst", o.burst, "with --kube-api-qps, the burst of requests that is allowed")
	f.StringVar(&o.limitsFile, "write-limits", "", "`file` with limits on what controllers may write, beyond which writes are held until there is room or a person approves; see docs/write-limits.md")
	o.concurrent.add(f)
}

// limits reads the file of the write limits; nil without one.
//
// Errors: the file cannot be read, is invalid, or names an unknown controller.
func (o *writerOptions) limits() (*limits.Set, error) {
	if o.limitsFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.limitsFile)
	if err != nil {
		return nil, fmt.Errorf("read --write-limits: %w", err)
	}
	set, err := limits.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read --write-limits=%s: %w", o.limitsFile, err)
	}
	for _, name := range set.Controllers() {
		if e, known := controllers.Find(name); !known || e.Name != name {
			return nil, fmt.Errorf("read --write-limits=%s: no controller is named %q; write a name such as replicaset-controller, or \"*\"", o.limitsFile, name)
		}
	}
	return set, nil
}

// check validates the mode and the limits before anything is started.
func (o *writerOptions) check() error {
	switch m := writer.Mode(o.mode); m {
	case writer.Apply, writer.DryRun, writer.Off:
	default:
		return fmt.Errorf("read --mode: %q is not %s, %s or %s", m, writer.Apply, writer.DryRun, writer.Off)
	}
	if _, err := o.limits(); err != nil {
		return err
	}
	switch {
	case o.qps == 0:
		return errors.New("read --kube-api-qps: with 0 nothing would be written; leave it out, or take a number below 0, for no limit")
	case o.qps > 0 && o.burst < 1:
		return fmt.Errorf("read --kube-api-burst: with %d nothing would be written", o.burst)
	}
	return nil
}

func (c concurrency) add(f *pflag.FlagSet) {
	for i := range c {
		l := &c[i]
		f.IntVar(&l.turns, l.flag, l.turns, "number of turns of "+l.of+" that are carried out concurrently")
	}
}
