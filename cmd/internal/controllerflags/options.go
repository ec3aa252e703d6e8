package controllerflags

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/apply/mint"
)

// Options are the flags that select the controllers and configure them.
type Options struct {
	// Controllers and Shadow are the lists of --controllers and --shadow.
	Controllers, Shadow []string
	// RootCAFile is the file with the root certificates that are published.
	RootCAFile string
	trusted    []byte // the kubeconfig's certificates, where that is read
	// KeyFile is the file with the key that signs tokens.
	KeyFile string
	collect bool
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
	// Chosen are the controllers that the flags select, set by Choose.
	Chosen Choice
}

// New has the defaults of the flags.
func New() Options {
	return Options{Controllers: []string{"*"}, collect: true, endpoints: 100, mirrored: 1000, finished: 12500, recount: 5 * time.Minute, unused: 365 * 24 * time.Hour, dynamic: true, nodes: newNodeOptions(), autoscaling: newAutoscalingOptions(), ranges: newRangeOptions(), certificates: newCertificateOptions()}
}

// Add adds the flags, with those of kube-controller-manager that have no effect.
func (o *Options) Add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		"controllers to run: '*' enables all that are on by default, 'name' enables one, '-name' disables one; the first match wins\nAll controllers: "+strings.Join(ours(), ", "))
	f.StringSliceVar(&o.Shadow, "shadow", o.Shadow,
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
	f.StringVar(&o.KeyFile, "service-account-private-key-file", o.KeyFile,
		"`file` with the private key, RSA or ECDSA, that signs tokens of service accounts; without it serviceaccount-token-controller is off. Only the writer reads it")
	o.features.add(f)
	program.Titled("node lifecycle controller", o.nodes.add)(f)
	program.Titled("horizontal pod autoscaler", o.autoscaling.add)(f)
	program.Titled("node and Service ranges", o.ranges.add)(f)
	program.Titled("certificate signer", o.certificates.add)(f)
	o.addRootCA(f)
	program.Titled("no-effect", addMoot)(f)
}

// Config translates the flags to the configuration of the controllers.
//
// Errors: a number is out of range; the root certificate cannot be read.
func (o *Options) Config() (controllers.Config, error) {
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
	return controllers.Config{Ranges: ranges, Gates: gates, Signers: signers, StorageVersions: gates.On(gate.APIServerIdentity) && gates.On(gate.StorageVersionAPI), RootCA: ca, Tokens: o.KeyFile != "", Nodes: nodes, Autoscaling: autoscaling, QuotaPeriod: recount, TokenPeriod: o.unused, StaticVolumes: !o.dynamic, EndpointsPerSlice: o.endpoints, MirroredPerSubset: o.mirrored, TerminatedPods: kept, Attaching: controllers.Attaching{Patient: o.patient}}, nil
}

// selection is the list of controllers for [controllers.Select].
func (o *Options) selection() []string {
	if o.collect {
		return o.Controllers
	}
	return append([]string{"-garbage-collector-controller"}, o.Controllers...)
}

// mint makes the signer of service account tokens, as kube-controller-manager has it; nil
// without a key.
//
// Errors: the key cannot be read, or is not a key; as [Options.rootCA].
func (o *Options) mint() (*mint.Mint, error) {
	if o.KeyFile == "" {
		return nil, nil
	}
	key, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read --service-account-private-key-file: %w", err)
	}
	ca, err := o.rootCA()
	if err != nil {
		return nil, err
	}
	m, err := mint.New(key, ca)
	if err != nil {
		return nil, fmt.Errorf("read --service-account-private-key-file %s: %w", o.KeyFile, err)
	}
	return m, nil
}

// Secrets sign service account tokens and certificates. Only the writer has them.
type Secrets struct {
	Tokens       *mint.Mint
	Certificates *authority.Authority
}

// Secrets reads the writer's signing keys.
//
// Errors: as [Options.mint] and [certificateOptions.authority].
func (o *Options) Secrets() (s Secrets, err error) {
	if s.Tokens, err = o.mint(); err != nil {
		return s, err
	}
	s.Certificates, err = o.certificates.authority()
	return s, err
}

// Check is an error if an item of --controllers or --shadow names no controller.
func (o *Options) Check() error {
	var unknown []error
	for _, list := range []struct {
		flag  string
		items []string
	}{{"controllers", o.Controllers}, {"shadow", o.Shadow}} {
		for _, item := range list.items {
			name := strings.TrimPrefix(strings.TrimSpace(item), "-")
			if name == "*" {
				continue
			}
			if _, err := resolve.Controller(name); err != nil {
				unknown = append(unknown, fmt.Errorf("read --%s: %w", list.flag, err))
			}
		}
	}
	return errors.Join(unknown...)
}

// ours are the names of the controllers that Millrace has.
func ours() (names []string) {
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}
