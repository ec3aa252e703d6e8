// Package controllers is the catalogue: every controller that upstream's
// kube-controller-manager knows, and which of them Millrace has.
//
// A new controller is one folder below this one and one line in [catalog].
package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/reconcilers/controllers/attachdetach"
	"github.com/millrace/millrace/services/reconcilers/controllers/bootstrapsigner"
	"github.com/millrace/millrace/services/reconcilers/controllers/clusterroleaggregation"
	"github.com/millrace/millrace/services/reconcilers/controllers/clustertrustbundlepublisher"
	"github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrapproving"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrsigning"
	"github.com/millrace/millrace/services/reconcilers/controllers/daemonset"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/devicetainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslice"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslicemirroring"
	"github.com/millrace/millrace/services/reconcilers/controllers/ephemeralvolume"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/controllers/job"
	"github.com/millrace/millrace/services/reconcilers/controllers/legacytokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/namespace"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodeipam"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodelifecycle"
	"github.com/millrace/millrace/services/reconcilers/controllers/persistentvolumebinder"
	"github.com/millrace/millrace/services/reconcilers/controllers/podcertificaterequestcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgroupprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourceclaim"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcepoolstatusrequest"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
	"github.com/millrace/millrace/services/reconcilers/controllers/rootcapublisher"
	"github.com/millrace/millrace/services/reconcilers/controllers/selinuxwarning"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccount"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccounttoken"
	"github.com/millrace/millrace/services/reconcilers/controllers/servicecidr"
	"github.com/millrace/millrace/services/reconcilers/controllers/statefulset"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversiongc"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversionmigrator"
	"github.com/millrace/millrace/services/reconcilers/controllers/tainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/tokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttl"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttlafterfinished"
	"github.com/millrace/millrace/services/reconcilers/controllers/vacprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/validatingadmissionpolicystatus"
	"github.com/millrace/millrace/services/reconcilers/controllers/volumeexpander"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is what controllers need to know that is not in the cluster. A
// controller says in its Settings which of these it was given, under the same
// names; so [Entry.Again] can make it as it was.
type Config struct {
	// RootCA is the PEM bundle that the root-ca-certificate-publisher-controller
	// publishes. Without one that controller does not run. Tokens of service accounts
	// have it beside them.
	RootCA []byte `json:"rootCA,omitempty"`
	// EndpointsPerSlice is how many endpoints an EndpointSlice holds at most; 0 means
	// upstream's 100.
	EndpointsPerSlice int `json:"endpointsPerSlice,omitempty"`
	// MirroredPerSubset is how many addresses of a subset of Endpoints are mirrored to
	// an EndpointSlice; 0 means upstream's 1,000.
	MirroredPerSubset int `json:"mirroredPerSubset,omitempty"`
	// TerminatedPods is how many pods that have ended are kept; 0 means upstream's 12,500,
	// less than 0 all.
	TerminatedPods int `json:"terminatedPods,omitempty"`
	// QuotaPeriod is how often what quotas limit is counted again; 0 means upstream's 5
	// minutes, less than 0 never.
	QuotaPeriod time.Duration `json:"quotaPeriod,omitempty"`
	// TokenPeriod is for how long a token that Kubernetes made before 1.24 must have been
	// unused; 0 means upstream's year.
	TokenPeriod time.Duration `json:"tokenPeriod,omitempty"`
	// Tokens is true where the writer has the key that signs tokens of service accounts.
	// Without, serviceaccount-token-controller does not run.
	Tokens bool `json:"tokens,omitempty"`
	// Signers are those whose keys the writer has. Without any,
	// certificatesigningrequest-signing-controller does not run.
	Signers []string `json:"signers,omitempty"`
	// StorageVersions is true where the API server serves StorageVersions, which are
	// alpha. Without, storageversion-garbage-collector-controller does not run.
	StorageVersions bool `json:"storageVersions,omitempty"`
	// StaticVolumes is true where no volumes are asked of provisioners.
	StaticVolumes bool `json:"staticVolumes,omitempty"`
	// Gates are the feature gates that are not at Kubernetes' defaults.
	Gates gate.Set `json:"gates,omitempty"`
	// Nodes is when nodes are silent, and how fast their pods go.
	Nodes Nodes `json:"nodes,omitzero"`
	// Ranges are those from which nodes get theirs. Without any node-ipam-controller does not
	// run.
	Ranges Ranges `json:"ranges,omitzero"`
	// Autoscaling is how often autoscalers look, and what they make of what they see.
	Autoscaling Autoscaling `json:"autoscaling,omitzero"`
	// Attaching is for how long it is waited for nodes to let go of volumes.
	Attaching Attaching `json:"attaching,omitzero"`
}

// Autoscaling is what horizontal-pod-autoscaler-controller needs to know.
type Autoscaling = horizontalpodautoscaler.Config

// Whole is a configuration with which every controller runs that Millrace has, for those who
// ask what all of them may do.
func Whole() Config {
	return Config{
		RootCA: []byte("a certificate"), StorageVersions: true, Tokens: true, Signers: csr.Signers(),
		Ranges: Ranges{Cluster: []Range{{CIDR: "10.0.0.0/16", Mask: 24}}},
		Gates: gate.Set{
			gate.GenericWorkload:        true,
			gate.PodCertificateRequest:  true,
			gate.DRADeviceTaintRules:    true,
			gate.DRAResourcePoolStatus:  true,
			gate.StorageVersionMigrator: true,
			gate.ClusterTrustBundle:     true,
		},
	}
}

func (c Config) autoscaling() Autoscaling {
	a := c.Autoscaling
	a.Gates = c.Gates
	return a
}

// Nodes is what node-lifecycle-controller needs to know.
type Nodes = nodelifecycle.Config

// Ranges is what node-ipam-controller needs to know, of ranges of the cluster.
type (
	Ranges = nodeipam.Config
	Range  = nodeipam.Range
)

// Attaching is what persistentvolume-attach-detach-controller needs to know.
type Attaching = attachdetach.Config

// Entry is a line of the catalogue.
type Entry struct {
	// Name is upstream's name; Aliases are its other names for --controllers.
	Name    string
	Aliases []string
	// Off is true for what "*" does not include.
	Off bool
	// Elsewhere is true for what upstream knows by name but leaves to a
	// cloud-controller-manager: it may be asked for, and nothing comes of it.
	Elsewhere bool
	// Needs is the flag without which it does not run; empty for most.
	Needs string

	// make builds the controller; nil when Millrace does not have it yet.
	make func(Config) reconcile.Any
	// ready tells whether the configuration is enough to run it; nil means always.
	ready func(Config) bool
}

// Exists is true when Millrace has the controller.
func (e Entry) Exists() bool { return e.make != nil }

// Again makes a controller as it was when it recorded its settings in a turn.
//
// Errors: Millrace does not have it; the settings are not of this version; they
// are missing, and it cannot do without.
func (e Entry) Again(settings json.RawMessage) (reconcile.Any, error) {
	if !e.Exists() {
		return nil, fmt.Errorf("make %s again: this version does not have it", e.Name)
	}
	var config Config
	if len(settings) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(settings))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&config); err != nil {
			return nil, fmt.Errorf("make %s again: read its recorded settings: %w", e.Name, err)
		}
	}
	if e.ready != nil && !e.ready(config) {
		return nil, fmt.Errorf("make %s again: its settings are not on record", e.Name)
	}
	return e.make(config), nil
}

// Again makes a controller as it was when it recorded its settings in a turn; see
// [Entry.Again].
func Again(name string, settings json.RawMessage) (reconcile.Any, error) {
	e, ok := Find(name)
	if !ok {
		return nil, fmt.Errorf("make %s again: this version does not know it", name)
	}
	return e.Again(settings)
}

// Catalog is every controller, grouped by what it is about.
func Catalog() []Entry { return slices.Clone(catalog) }

// Upstream: cmd/kube-controller-manager/names, and the descriptors in its app.
var catalog = []Entry{
	// Workloads.
	configured(func(c Config) reconcile.Any { return deployment.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return replicaset.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return replicationcontroller.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return statefulset.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return daemonset.New(c.Gates) }),
	configured(func(c Config) reconcile.Any { return job.New(c.Gates) }),
	have(cronjob.Controller),
	have(disruption.Controller),
	configured(func(c Config) reconcile.Any { return horizontalpodautoscaler.New(c.autoscaling()) }),
	needing("feature-gates", func(Config) reconcile.Any { return podgroupprotection.Controller }, func(c Config) bool { return c.Gates.On(gate.GenericWorkload) }),

	// Life and deletion of objects.
	have(garbagecollector.Controller),
	have(namespace.Controller),
	configured(func(c Config) reconcile.Any { return podgc.New(podgc.Config{Threshold: c.TerminatedPods}) }),
	have(ttlafterfinished.Controller),

	// Identity.
	have(serviceaccount.Controller),
	needing("service-account-private-key-file", func(c Config) reconcile.Any {
		return serviceaccounttoken.New(serviceaccounttoken.Config{RootCA: c.RootCA, Tokens: c.Tokens})
	}, func(c Config) bool { return c.Tokens }),
	needing("root-ca-file", func(c Config) reconcile.Any {
		return rootcapublisher.New(rootcapublisher.Config{RootCA: c.RootCA})
	}, func(c Config) bool { return len(c.RootCA) > 0 }),
	off(have(bootstrapsigner.Controller)),
	off(have(tokencleaner.Controller)),
	configured(func(c Config) reconcile.Any {
		return legacytokencleaner.New(legacytokencleaner.Config{Period: c.TokenPeriod})
	}),
	have(csrapproving.Controller),
	needing("cluster-signing-cert-file", func(c Config) reconcile.Any {
		return csrsigning.New(csrsigning.Config{Signers: c.Signers})
	}, func(c Config) bool { return len(c.Signers) > 0 }),
	have(csrcleaner.Controller),
	needing("feature-gates", func(Config) reconcile.Any { return podcertificaterequestcleaner.Controller }, func(c Config) bool { return c.Gates.On(gate.PodCertificateRequest) }),
	needing("feature-gates", func(c Config) reconcile.Any {
		return clustertrustbundlepublisher.New(clustertrustbundlepublisher.Config{RootCA: c.RootCA})
	}, func(c Config) bool { return c.Gates.On(gate.ClusterTrustBundle) && len(c.RootCA) > 0 }),

	// Network.
	have(endpoints.Controller),
	configured(func(c Config) reconcile.Any { return endpointslice.New(endpointslice.Config{Max: c.EndpointsPerSlice}) }),
	configured(func(c Config) reconcile.Any {
		return endpointslicemirroring.New(endpointslicemirroring.Config{Max: c.MirroredPerSubset})
	}),
	have(servicecidr.Controller),

	// Policy.
	configured(func(c Config) reconcile.Any {
		return resourcequota.New(resourcequota.Config{Period: c.QuotaPeriod, Gates: c.Gates})
	}),
	have(clusterroleaggregation.Controller),
	have(validatingadmissionpolicystatus.Controller),

	// Nodes.
	configured(func(c Config) reconcile.Any { return nodelifecycle.New(c.Nodes) }),
	configured(func(c Config) reconcile.Any { return tainteviction.New(c.Gates) }),
	needing("allocate-node-cidrs", func(c Config) reconcile.Any { return nodeipam.New(c.Ranges) }, func(c Config) bool { return len(c.Ranges.Cluster) > 0 }),
	have(ttl.Controller),

	// Devices.
	configured(func(c Config) reconcile.Any { return resourceclaim.New(c.Gates) }),
	needing("feature-gates", func(c Config) reconcile.Any { return devicetainteviction.New(c.Gates) }, func(c Config) bool { return c.Gates.On(gate.DRADeviceTaints) }),
	needing("feature-gates", func(Config) reconcile.Any { return resourcepoolstatusrequest.Controller }, func(c Config) bool { return c.Gates.On(gate.DRAResourcePoolStatus) }),

	// Storage.
	configured(func(c Config) reconcile.Any {
		return persistentvolumebinder.New(persistentvolumebinder.Config{Static: c.StaticVolumes})
	}),
	configured(func(c Config) reconcile.Any { return attachdetach.New(c.Attaching) }),
	have(volumeexpander.Controller),
	have(ephemeralvolume.Controller),
	configured(func(c Config) reconcile.Any { return pvcprotection.New(c.Gates) }),
	have(pvprotection.Controller),
	have(vacprotection.Controller),
	off(have(selinuxwarning.Controller)),
	needing("feature-gates", func(Config) reconcile.Any { return storageversiongc.Controller }, func(c Config) bool { return c.StorageVersions }),
	needing("feature-gates", func(Config) reconcile.Any { return storageversionmigrator.Controller }, func(c Config) bool { return c.Gates.On(gate.StorageVersionMigrator) }),

	// Clouds.
	{Name: "service-lb-controller", Aliases: []string{"service"}, Elsewhere: true},
	{Name: "node-route-controller", Aliases: []string{"route"}, Elsewhere: true},
	{Name: "cloud-node-lifecycle-controller", Aliases: []string{"cloud-node-lifecycle"}, Elsewhere: true},
}

// have is the line of a controller that needs no configuration.
func have(c reconcile.Any) Entry {
	d := c.Describe()
	return Entry{Name: d.Name, Aliases: d.Aliases, make: func(Config) reconcile.Any { return c }}
}

// off is the line of a controller that "*" does not include.
func off(e Entry) Entry {
	e.Off = true
	return e
}

// configured is the line of a controller that can do without a configuration.
func configured(made func(Config) reconcile.Any) Entry {
	d := made(Config{}).Describe()
	return Entry{Name: d.Name, Aliases: d.Aliases, make: made}
}

// needing is the line of a controller that does not run without a flag.
func needing(flag string, made func(Config) reconcile.Any, ready func(Config) bool) Entry {
	e := configured(made)
	e.Needs, e.ready = flag, ready
	return e
}
