# peelreduce_nccl: the transport over NCCL, where the CUDA toolkit and NCCL are found.
file(GLOB peel_nccl_sources CONFIGURE_DEPENDS src/transport/nccl/*.cpp src/transport/nccl/*.cu)
