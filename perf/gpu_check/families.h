#pragma once

#include <vector>

#include "perf/gpu_check/bench.h"

// What is measured, family by family: perf/gpu_check/<family>.cu.
namespace telegrad::gpu_check {

void MeasureCast(Arrays& arrays, std::vector<Row>& rows);
void MeasureSign(Arrays& arrays, std::vector<Row>& rows);
void MeasureBlock(Arrays& arrays, std::vector<Row>& rows);
void MeasureBlockTop(Arrays& arrays, std::vector<Row>& rows);
void MeasureSparse(Arrays& arrays, std::vector<Row>& rows);
void MeasureSparseList(Arrays& arrays, std::vector<Row>& rows);
void MeasureSelect(Arrays& arrays, std::vector<Row>& rows);
void MeasureDrawn(Arrays& arrays, std::vector<Row>& rows);
void MeasureRadix(Arrays& arrays, std::vector<Row>& rows);
void MeasureLowRank(Arrays& arrays, std::vector<Row>& rows);
void MeasureOptimizer(Arrays& arrays, std::vector<Row>& rows);
void MeasureHalf(Arrays& arrays, std::vector<Row>& rows);
// Chunks, and the gradients of networks in chunks.
void MeasureBatch(Arrays& arrays, std::vector<Row>& rows);
// After those whose peer it is.
void MeasureMxnet(Arrays& arrays, std::vector<Row>& rows);

}  // namespace telegrad::gpu_check
