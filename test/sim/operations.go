package sim

import (
	"slices"

	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Infrastructure is what administrators do with nodes, volumes and roles.
var Infrastructure = []cluster.Operation{
	nodes.NewNode, nodes.NewNode, nodes.DeleteNode, nodes.ForgeNode, storage.NewVolume, storage.NewVolume, storage.BindVolume, storage.DeleteVolume,
	nodes.OutOfService, nodes.OutOfService, storage.NewClaim, storage.NewClaim, storage.UseClaim, storage.UseClaim, storage.DeleteClaim, storage.DeleteClaim, cluster.DeletePod, metadata.NewRole, metadata.NewRole, metadata.ChangeRole, metadata.DeleteRole,
}

// Everything is what users do with workloads, and with namespaces and their default content.
var Everything = slices.Concat(metadata.Furniture, []cluster.Operation{workloads.DeleteSet}, workloads.Workloads)
