package gate

// known are the feature gates of kube-controller-manager 1.36.3, by stage, default, and whether
// they are locked to it. Package oracle compares the table with upstream's own.
var known = []struct {
	stage      Stage
	on, locked bool
	names      string
}{
	{Alpha, false, false, `
		APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage CPUManagerPolicyAlphaOptions
		CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
		CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
		ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAListTypeAttributes
		DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims EventedPLEG GangScheduling
		GenericWorkload HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
		InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace LoggingAlphaOptions
		ManifestBasedAdmissionControlConfig MemoryQoS MutablePVNodeAffinity NativeHistograms
		PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
		PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
		ShardedListAndWatch StorageCapacityScoring StorageVersionAPI TaintTolerationComparisonOperators
		TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport
		VolumeLimitScaling WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob`},
	{Beta, false, false, `
		ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
		DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
		PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator`},
	{Beta, true, false, `
		APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
		AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
		ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz
		ComponentStatusz ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
		DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
		DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout
		DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles
		ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance
		HostnameOverride InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
		InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
		KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
		LoggingBetaOptions MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
		MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
		NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodDeletionCost
		PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
		PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
		ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
		RestartAllContainersOnContainerExits RotateKubeletServerCertificate SchedulerAsyncPreemption
		SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
		StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
		StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash
		StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector
		StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
		TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
		UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList
		WatchListClient WindowsGracefulNodeShutdown`},
	{GA, true, false, `
		AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion
		MutatingAdmissionPolicy`},
	{GA, true, true, `
		APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
		AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
		CSIServiceAccountTokenSecrets ConsistentListFromCache CustomResourceFieldSelectors DRAAdminAccess
		DeclarativeValidation DisableAllocatorDualWrite DynamicResourceAllocation ExecProbeTimeout
		ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume InOrderInformers InPlacePodVerticalScaling
		JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI
		KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing
		LogarithmicScaleDown MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator MutableCSINodeAllocatableCount
		NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion
		PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
		PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
		RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
		RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerQueueingHints
		SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
		ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers
		StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
		SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport
		VolumeAttributesClass WinDSR WinOverlay`},
	{Deprecated, false, false, `
		AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests ChangeContainerStatusOnKubeletRestart
		DeclarativeValidationTakeover KMSv1 KubeletRegistrationGetOnExistsOnly WindowsHostNetwork`},
	{Deprecated, false, true, `
		AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC`},
	{Deprecated, true, false, `
		DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods ServiceCIDRStatusFieldWiping
		StorageNamespaceIndex`},
	{Deprecated, true, true, `
		AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion`},
}

// needs are the gates that must be on for a gate to be on.
var needs = map[string][]string{
	"AuthorizeNodeWithSelectors":                          {"AuthorizeWithSelectors"},
	"ClusterTrustBundleProjection":                        {"ClusterTrustBundle"},
	"DRAAdminAccess":                                      {"DynamicResourceAllocation"},
	"DRAConsumableCapacity":                               {"DynamicResourceAllocation"},
	"DRADeviceBindingConditions":                          {"DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"},
	"DRADeviceTaintRules":                                 {"DRADeviceTaints"},
	"DRADeviceTaints":                                     {"DynamicResourceAllocation"},
	"DRAExtendedResource":                                 {"DynamicResourceAllocation"},
	"DRAListTypeAttributes":                               {"DynamicResourceAllocation"},
	"DRANodeAllocatableResources":                         {"DynamicResourceAllocation"},
	"DRAPartitionableDevices":                             {"DynamicResourceAllocation"},
	"DRAPrioritizedList":                                  {"DynamicResourceAllocation"},
	"DRAResourceClaimGranularStatusAuthorization":         {"DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"},
	"DRAResourcePoolStatus":                               {"DynamicResourceAllocation"},
	"DRASchedulerFilterTimeout":                           {"DynamicResourceAllocation"},
	"DRAWorkloadResourceClaims":                           {"DynamicResourceAllocation", "GenericWorkload"},
	"DeclarativeValidationBeta":                           {"DeclarativeValidation"},
	"DeclarativeValidationTakeover":                       {"DeclarativeValidation"},
	"DisableAllocatorDualWrite":                           {"MultiCIDRServiceAllocator"},
	"ExtendWebSocketsToKubelet":                           {"NodeDeclaredFeatures"},
	"GangScheduling":                                      {"GenericWorkload"},
	"GracefulNodeShutdownBasedOnPodPriority":              {"GracefulNodeShutdown"},
	"ImageVolumeWithDigest":                               {"ImageVolume"},
	"InPlacePodLevelResourcesVerticalScaling":             {"InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources"},
	"InPlacePodVerticalScalingExclusiveCPUs":              {"InPlacePodVerticalScaling"},
	"InPlacePodVerticalScalingExclusiveMemory":            {"InPlacePodVerticalScaling"},
	"InPlacePodVerticalScalingInitContainers":             {"InPlacePodVerticalScaling", "NodeDeclaredFeatures"},
	"MatchLabelKeysInPodTopologySpreadSelectorMerge":      {"MatchLabelKeysInPodTopologySpread"},
	"PodCertificateRequest":                               {"AuthorizeNodeWithSelectors"},
	"PodLevelResourceManagers":                            {"PodLevelResources"},
	"PodLifecycleSleepActionAllowZero":                    {"PodLifecycleSleepAction"},
	"ProcMountType":                                       {"UserNamespacesSupport"},
	"ResourceHealthStatusMessage":                         {"ResourceHealthStatus"},
	"ResourceHealthStatus":                                {"DynamicResourceAllocation"},
	"RestartAllContainersOnContainerExits":                {"ContainerRestartRules", "NodeDeclaredFeatures"},
	"ServiceAccountTokenNodeBinding":                      {"ServiceAccountTokenNodeBindingValidation"},
	"StaleControllerConsistencyDaemonSet":                 {"AtomicFIFO"},
	"StaleControllerConsistencyJob":                       {"AtomicFIFO"},
	"StaleControllerConsistencyReplicaSet":                {"AtomicFIFO"},
	"StaleControllerConsistencyStatefulSet":               {"AtomicFIFO"},
	"StorageVersionAPI":                                   {"APIServerIdentity"},
	"StructuredAuthenticationConfigurationEgressSelector": {"StructuredAuthenticationConfiguration"},
	"StructuredAuthenticationConfigurationJWKSMetrics":    {"StructuredAuthenticationConfiguration"},
	"TopologyAwareWorkloadScheduling":                     {"GenericWorkload"},
	"UnknownVersionInteroperabilityProxy":                 {"APIServerIdentity"},
	"UserNamespacesHostNetworkSupport":                    {"NodeDeclaredFeatures", "UserNamespacesSupport"},
	"WindowsGracefulNodeShutdown":                         {"GracefulNodeShutdown"},
	"WorkloadAwarePreemption":                             {"GangScheduling"},
	"WorkloadWithJob":                                     {"GenericWorkload"},
}
